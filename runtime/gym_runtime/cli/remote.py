"""A running system, seen by a command that joins it: its answers, and its pools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from gym_runtime.cli.loop import run_async
from gym_runtime.cli.models import POLICY
from gym_runtime.cli.options import BrokerOptions
from gym_runtime.client import Client, connect
from gym_runtime.rpc.members import Heartbeat

T = TypeVar("T")


def ask(broker: BrokerOptions, question: Callable[[Client], Awaitable[T]]) -> T:
    """Ask a running system one thing.

    Raises:
        UsageError: no system was named.
    """
    urls = broker.required()

    async def main() -> T:
        async with connect(urls, prefix=broker.prefix) as gym:
            return await question(gym)

    return run_async(main)


def unserved(
    workers: Iterable[Heartbeat],
    *,
    agents: Iterable[str] = (),
    environments: Iterable[str] = (),
    models: Iterable[str] = (),
) -> list[str]:
    """One line for each name that rollouts ask for and no worker serves now."""
    served = {(worker.kind, pool) for worker in workers for pool in worker.pools}
    wanted = [
        *(("agent", "agent", name) for name in agents),
        *(("resource", "environment", name) for name in environments),
        *(("model", "model", name) for name in models),
    ]
    return [
        f"no worker serves {noun} '{name}' now; what asks for it waits until one does: "
        f"gym-runtime start {kind if name == POLICY else f'{kind}:{name}'}"
        for kind, noun, name in wanted
        if (kind, name) not in served
    ]
