"""``metrics``: the metrics of a running system, served and pushed until it is told to stop."""

from __future__ import annotations

import signal
import sys
from contextlib import AsyncExitStack

import anyio
from gym_runtime import logs, tracing
from gym_runtime.bus import connect
from gym_runtime.cli import BROKER, Broker, Port, run_async, terminal

from gym_view.metrics.metrics_server import serving


def metrics(*, host: str = "127.0.0.1", port: Port = 9464, broker: Broker = BROKER) -> int:
    """Serve the metrics of a whole running system in one place, for Prometheus.

    OTEL_EXPORTER_OTLP_ENDPOINT has them pushed to an OpenTelemetry collector besides.

    Args:
        host: Where to listen; every program that reaches it may read the metrics.
        port: 0 lets the system choose.
    """
    urls = broker.required()
    logs.start("metrics", lines=True)
    if told := tracing.foreign_protocol():
        logs.logger().warning(told)

    async def stay() -> None:
        async with AsyncExitStack() as stack:
            bus = await stack.enter_async_context(connect(urls, prefix=broker.prefix, name="metrics"))
            signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM))
            url = await stack.enter_async_context(serving(bus, host=host, port=port))
            terminal.say(url)
            sys.stdout.flush()
            async for _ in signals:
                return

    run_async(stay)
    return 0
