"""``gateway``: models for agents that know nothing of this runtime, until it is told to stop."""

from __future__ import annotations

import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import msgspec

from gym_runtime.bus.connection import connect
from gym_runtime.cli import terminal
from gym_runtime.cli.options import require_broker
from gym_runtime.cli.remote import unserved
from gym_runtime.errors import UsageError
from gym_runtime.gateway.capture import Captures
from gym_runtime.gateway.model_pools import Pools
from gym_runtime.gateway.server import Gateway, serving
from gym_runtime.recordings.calls_file import CallsFile
from gym_runtime.rpc.roll_call import all_workers
from gym_runtime.rpc.router import Router


class GatewayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``gateway`` was asked to do.

    Attributes:
        pools: the model pools that clients may name; the first one serves all other names.
        output: where each call is written; None for memory only.
        capacity: calls in progress at most.
        timeout_s: of one call.
    """

    host: str = "127.0.0.1"
    port: int = 0
    pools: tuple[str, ...] = ("policy",)
    output: Path | None = None
    return_token_ids: bool = False
    capacity: int = 1024
    timeout_s: float = 600.0
    nats: tuple[str, ...] = ()
    prefix: str = "gym"


def gateway(options: GatewayOptions) -> int:
    """Serve until SIGINT or SIGTERM; the process's exit status.

    Raises:
        UsageError: no broker was named, the address is taken, or the file cannot be written.
    """
    require_broker(options.nats)
    anyio.run(_stay, options, backend_options={"use_uvloop": sys.platform != "win32"})
    return 0


async def _stay(options: GatewayOptions) -> None:
    async with AsyncExitStack() as stack:
        file = None
        if options.output is not None:
            file = CallsFile(options.output)
            stack.callback(file.close)
        # A broker that keeps roles apart lets agents ask models, and this stands for agents.
        bus = await stack.enter_async_context(
            connect(options.nats, prefix=options.prefix, name="gateway", role="agent")
        )
        router = Router(bus)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(router.run)
        pools = Pools(router, options.pools, return_tokens=options.return_token_ids)
        served = Gateway(
            pools.ask,
            models=options.pools,
            captures=Captures(file=file),
            capacity=options.capacity,
            timeout_s=options.timeout_s,
        )
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM))
        try:
            url = await stack.enter_async_context(serving(served, host=options.host, port=options.port))
        except OSError as error:
            where = f"{options.host}:{options.port}"
            raise UsageError(f"cannot listen on {where}: {error.strerror}; choose another --port") from None
        alive = [worker for worker in await all_workers(bus) if worker.kind == "model"]
        for line in unserved(alive, models=options.pools):
            terminal.errors().print(line, soft_wrap=True)
        _show(url)
        async for _ in signals:
            return


def _show(url: str) -> None:
    console = terminal.output()
    console.print(f"serving {url}/v1; per rollout, with its calls captured:", soft_wrap=True)
    console.print(f"OPENAI_BASE_URL={url}/rollouts/ID/v1", soft_wrap=True)
    console.print(f"ANTHROPIC_BASE_URL={url}/rollouts/ID", soft_wrap=True)
    console.print(f"curl {url}/rollouts/ID/calls", soft_wrap=True)
    sys.stdout.flush()
