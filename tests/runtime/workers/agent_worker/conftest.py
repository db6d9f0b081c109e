"""What these tests share."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from gym_runtime import Environment
from gym_runtime.environment.environment import LoadedEnvironment
from gym_testing.background import Mailbox
from gym_testing.small_system import (
    SmallSystem,
    environment,
    small_system,
)
from gym_testing.virtual_clock import BACKEND
from runtime.workers.agent_worker.agents import Desk


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


@pytest.fixture
def ledger() -> Mailbox[str]:
    return Mailbox()


@pytest.fixture
def desk(ledger: Mailbox[str]) -> LoadedEnvironment:
    noted = type("NotedDesk", (Desk,), {"ledger": ledger})
    return environment(Environment(resource=noted, description="a desk"), "sample")


@pytest.fixture
async def system(desk: LoadedEnvironment) -> AsyncGenerator[SmallSystem]:
    """A resource worker is there; tests add the others."""
    async with small_system() as system:
        await system.add_resource(desk)
        yield system
