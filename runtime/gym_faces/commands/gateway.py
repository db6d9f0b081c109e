"""``gateway``: serves models to agents that do not know this runtime, until a signal."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AsyncExitStack
from typing import Annotated

import anyio
from gym_data.web.listener import serving
from gym_runtime import logs
from gym_runtime.bus import connect
from gym_runtime.cli import (
    AT_LEAST_ONE,
    BROKER,
    POSITIVE,
    Broker,
    Output,
    Port,
    run_async,
    terminal,
)
from gym_runtime.client import unserved
from gym_runtime.rpc import Router, all_workers

from gym_faces.gateway.admission import Admission
from gym_faces.gateway.capture import Captures
from gym_faces.gateway.gateway_server import Gateway
from gym_faces.gateway.model_pools import Pools
from gym_faces.gateway.rollout_names import RolloutNames
from gym_faces.recordings.calls_file import CallsFile

SECRET = "GYM_GATEWAY_SECRET"


def gateway(
    *,
    host: str = "127.0.0.1",
    port: Port = 0,
    model_pool: tuple[str, ...] = ("policy",),
    output: Output = None,
    return_token_ids: bool = False,
    concurrency: Annotated[int, AT_LEAST_ONE] = 1024,
    timeout_s: Annotated[float, POSITIVE] = 600.0,
    broker: Broker = BROKER,
) -> int:
    """Serve a running system's models to agents that know only the APIs of OpenAI, Anthropic or Google.

    POST /rollouts/ID makes a rollout's NAME. Every call with the base URL /rollouts/NAME/v1, or the key
    gym-NAME, is captured for GET /rollouts/NAME/calls.

    Args:
        host: The address to listen on; every program that reaches it may use the models.
        port: 0 lets the system choose.
        model_pool: A model pool that clients may name as their model; the first serves all other names.
        output: A file to which each captured call is also written, JSONL.
        return_token_ids: Add token ids and log-probabilities to the captured calls.
        concurrency: Calls in progress; more are refused with 429.
        timeout_s: The limit of one call, in seconds.
    """
    urls = broker.required()
    logs.start("gateway")

    async def stay() -> None:
        names = RolloutNames(os.environ.get(SECRET, ""))
        async with AsyncExitStack() as stack:
            file = None
            if output is not None:
                file = CallsFile(output)
                stack.callback(file.close)
            # Where the broker separates roles, only agents may ask models, and the gateway asks for agents.
            bus = await stack.enter_async_context(
                connect(urls, prefix=broker.prefix, name="gateway", role="agent")
            )
            router = Router(bus)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(router.run)
            pools = Pools(router, model_pool, return_tokens=return_token_ids)
            served = Gateway(
                pools.ask,
                count=pools.ask,
                models=model_pool,
                captures=Captures(file=file),
                names=names,
                admission=Admission(concurrency),
                hosts=(host,),
                timeout_s=timeout_s,
            )
            signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM))
            url = await stack.enter_async_context(serving(served, host=host, port=port))
            alive = [worker for worker in await all_workers(bus) if worker.kind == "model"]
            for line in unserved(alive, models=model_pool):
                logs.logger().warning(line)
            _show(url, names)
            async for _ in signals:
                return

    run_async(stay)
    return 0


def _show(url: str, names: RolloutNames) -> None:
    console = terminal.output()
    console.print(f"serving {url}/v1; per rollout, with its calls captured:", soft_wrap=True)
    if not os.environ.get(SECRET):  # made here: the user who starts the gateway starts the agents too
        console.print(f"export {SECRET}={names.secret}", soft_wrap=True)
    key = f'-H "authorization: Bearer ${SECRET}"'
    console.print(f"curl -X POST {key} {url}/rollouts/ID  # the rollout's NAME", soft_wrap=True)
    console.print(f"OPENAI_BASE_URL={url}/rollouts/NAME/v1", soft_wrap=True)
    console.print(f"ANTHROPIC_BASE_URL={url}/rollouts/NAME", soft_wrap=True)
    console.print(f"GOOGLE_GEMINI_BASE_URL={url}/rollouts/NAME", soft_wrap=True)
    console.print(f"curl {url}/rollouts/NAME/calls", soft_wrap=True)
    sys.stdout.flush()
