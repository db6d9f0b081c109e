"""``metrics``: the metrics of a running system, served and pushed until it is told to stop."""

from __future__ import annotations

import signal
import sys
from contextlib import AsyncExitStack

import anyio
from gym_view.metrics.metrics_server import serving

from gym_runtime import logs
from gym_runtime.bus.nats import connect
from gym_runtime.cli import terminal
from gym_runtime.cli.model_choice import require_broker
from gym_runtime.cli.options.system_options import MetricsOptions


def metrics(options: MetricsOptions) -> int:
    """Serve until SIGINT or SIGTERM; the process's exit status.

    Raises:
        UsageError: no broker was named, or the address is taken.
    """
    require_broker(options.broker)
    logs.start("metrics", lines=True)
    anyio.run(_stay, options, backend_options={"use_uvloop": sys.platform != "win32"})
    return 0


async def _stay(options: MetricsOptions) -> None:
    broker = options.broker
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(connect(broker.urls, prefix=broker.prefix, name="metrics"))
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM))
        url = await stack.enter_async_context(serving(bus, host=options.host, port=options.port))
        terminal.output().print(url, soft_wrap=True)
        sys.stdout.flush()
        async for _ in signals:
            return
