"""A system whose environment is a resources server behind HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from gym_runtime.environment import catalogue
from gym_runtime.messages.outcomes import RolloutRecord
from gym_testing.small_system import Engine, SmallSystem, small_system

SCHEME = "nemo-gym:"


@asynccontextmanager
async def guest(url: str, engine: Engine) -> AsyncGenerator[tuple[SmallSystem, str]]:
    """A system whose only environment is the server at this address."""
    async with small_system() as system:
        await system.add_resource(catalogue.environment(SCHEME + url))
        await system.add_model(engine)
        await system.add_agent()
        yield system, SCHEME + url


async def made(system: SmallSystem, name: str, *rows: dict[str, Any], **more: Any) -> list[RolloutRecord]:
    records = system.client.rollouts(rows, environment=name, ordered=True, **more)
    return [record async for record in records]
