"""A running system as a command that joins it finds it: what it answers, and what it serves just now."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

from gym_runtime.cli.model_choice import require_broker
from gym_runtime.cli.options.shared_options import BrokerOptions
from gym_runtime.client import Client, connect
from gym_runtime.rpc.members import Heartbeat

T = TypeVar("T")

MODEL_POOL = "policy"
"""The model that rollouts ask for unless they are told otherwise."""


def ask(broker: BrokerOptions, question: Callable[[Client], Awaitable[T]]) -> T:
    """Ask a running system one thing.

    Raises:
        UsageError: no system was named.
    """
    urls = require_broker(broker)

    async def main() -> T:
        async with connect(urls, prefix=broker.prefix) as gym:
            return await question(gym)

    return anyio.run(main, backend_options={"use_uvloop": sys.platform != "win32"})


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
        ("agent", "agent", agents),
        ("resource", "environment", environments),
        ("model", "model", models),
    ]
    lines: list[str] = []
    for kind, noun, names in wanted:
        for name in names:
            if (kind, name) not in served:
                start = kind if name == MODEL_POOL else f"{kind}:{name}"
                lines.append(
                    f"no worker serves {noun} '{name}' now; what asks for it waits until one does: "
                    f"gym-runtime start {start}"
                )
    return lines
