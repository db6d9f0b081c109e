"""``gateway``: models for agents that know nothing of this runtime, until it is told to stop."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AsyncExitStack

import anyio
from gym_data.web.listener import serving
from gym_faces.gateway.admission import Admission
from gym_faces.gateway.capture import Captures
from gym_faces.gateway.gateway_server import Gateway
from gym_faces.gateway.model_pools import Pools
from gym_faces.gateway.rollout_names import RolloutNames
from gym_faces.recordings.calls_file import CallsFile

from gym_runtime import logs
from gym_runtime.bus.nats import connect
from gym_runtime.cli import terminal
from gym_runtime.cli.model_choice import require_broker
from gym_runtime.cli.options.system_options import GatewayOptions
from gym_runtime.cli.remote import unserved
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.members import all_workers

SECRET = "GYM_GATEWAY_SECRET"


def gateway(options: GatewayOptions) -> int:
    """Serve until SIGINT or SIGTERM; the process's exit status.

    Raises:
        UsageError: no broker was named, the address is taken, or the file cannot be written.
    """
    require_broker(options.broker)
    logs.start("gateway")
    anyio.run(_stay, options, backend_options={"use_uvloop": sys.platform != "win32"})
    return 0


async def _stay(options: GatewayOptions) -> None:
    names = RolloutNames(os.environ.get(SECRET, ""))
    async with AsyncExitStack() as stack:
        file = None
        if options.output is not None:
            file = CallsFile(options.output)
            stack.callback(file.close)
        # A broker that keeps roles apart lets agents ask models, and this stands for agents.
        bus = await stack.enter_async_context(
            connect(options.broker.urls, prefix=options.broker.prefix, name="gateway", role="agent")
        )
        router = Router(bus)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(router.run)
        pools = Pools(router, options.model_pool, return_tokens=options.return_tokens)
        served = Gateway(
            pools.ask,
            models=options.model_pool,
            captures=Captures(file=file),
            names=names,
            admission=Admission(options.concurrency),
            hosts=(options.host,),
            timeout_s=options.timeout_s,
        )
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM))
        url = await stack.enter_async_context(serving(served, host=options.host, port=options.port))
        alive = [worker for worker in await all_workers(bus) if worker.kind == "model"]
        for line in unserved(alive, models=options.model_pool):
            logs.logger().warning(line)
        _show(url, names)
        async for _ in signals:
            return


def _show(url: str, names: RolloutNames) -> None:
    console = terminal.output()
    console.print(f"serving {url}/v1; per rollout, with its calls captured:", soft_wrap=True)
    if not os.environ.get(SECRET):  # made here: the user who starts the gateway starts the agents too
        console.print(f"export {SECRET}={names.secret}", soft_wrap=True)
    key = f'-H "authorization: Bearer ${SECRET}"'
    console.print(f"curl -X POST {key} {url}/rollouts/ID  # the rollout's NAME", soft_wrap=True)
    console.print(f"OPENAI_BASE_URL={url}/rollouts/NAME/v1", soft_wrap=True)
    console.print(f"ANTHROPIC_BASE_URL={url}/rollouts/NAME", soft_wrap=True)
    console.print(f"curl {url}/rollouts/NAME/calls", soft_wrap=True)
    sys.stdout.flush()
