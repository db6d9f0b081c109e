"""A resource worker and calls to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from gym_runtime import Environment
from gym_runtime.environment.environment import LoadedEnvironment
from gym_testing.background import Mailbox
from gym_testing.small_system import environment
from runtime.workers.resource_worker.resource_calls import Counter, Dice, RunningWorker, judge, working


@pytest.fixture
def ledger() -> Mailbox[str]:
    return Mailbox()


@pytest.fixture
def environments(ledger: Mailbox[str]) -> dict[str, LoadedEnvironment]:
    noted = type("NotedCounter", (Counter,), {"ledger": ledger})
    return {
        "counter": environment(Environment(resource=noted, description="counts"), "counter"),
        "dice": environment(Environment(resource=Dice, description="rolls"), "dice"),
        "judge": environment(Environment(resource=judge, description="judges"), "judge"),
    }


@pytest.fixture
async def running(environments: dict[str, LoadedEnvironment]) -> AsyncGenerator[RunningWorker]:
    async with working(environments) as running:
        yield running
