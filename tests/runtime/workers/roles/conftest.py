"""A small system with a judge."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    small_system,
)


@pytest.fixture
async def system() -> AsyncGenerator[SmallSystem]:
    async with small_system() as system:
        await system.add_agent()
        await system.add_model(Engine(answer("42")))
        yield system
