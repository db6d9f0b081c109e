"""A client on a small system whose agents are at work, and rows for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from gym_runtime.bus.interface import QueueDepth
from gym_runtime.client import Client
from gym_runtime.environment import catalogue
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.workers.resource_worker import ResourceWorker
from gym_testing.background import hosting, settled
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    Turn,
    answer,
    function_call,
    small_system,
)

NAME = "example_session_state_mgmt"
CALL = function_call("increment_counter", '{"count": 1}')
COUNT = [answer(CALL), answer("done")]
NOTHING = QueueDepth(waiting=0, in_flight=0)


def rows(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [
        {
            "responses_create_params": {"input": "go"},
            "initial_count": 3,
            "expected_count": 4,
            "n": n,
            **fields,
        }
        for n in range(count)
    ]


class RunningClient:
    def __init__(self, system: SmallSystem, gym: Client, resource: ResourceWorker, engine: Engine) -> None:
        self.system = system
        self.gym = gym
        self.resource = resource
        self.engine = engine

    def rollouts(self, count: int, **more: Any) -> AsyncGenerator[RolloutRecord]:
        return self.gym.rollouts(rows(count), environment=NAME, **more)

    @asynccontextmanager
    async def another(self) -> AsyncGenerator[Client]:
        """A client with its own connection."""
        async with self.system.broker.connect() as bus, hosting() as tasks:
            yield Client(bus, tasks)

    def tasks(self, run: str, count: int) -> list[RolloutSpec]:
        lines = [msgspec.json.encode(row) for row in rows(count)]
        return list(expand(lines, run=run, environment=NAME))

    async def at_rest(self) -> None:
        """Return when nothing waits and nothing runs, here and in the workers."""
        await settled(lambda: not len(self.resource.sessions), within_s=5)
        with anyio.fail_after(15):
            while await self.gym.driver.bus.depth("agent-tool_loop") != NOTHING:
                await anyio.sleep(0.01)


@asynccontextmanager
async def running_client(
    *turns: Turn, slots: int = 64, faults: Any = None, engine: Engine | None = None
) -> AsyncGenerator[RunningClient]:
    engine = engine or Engine(*(turns or COUNT))
    async with small_system(**({"faults": faults} if faults else {})) as system:
        resource = await system.add_resource(catalogue.environment(NAME))
        await system.add_model(engine, capacity=10_000)
        await system.add_agent(slots=slots)
        yield RunningClient(system, system.client, resource, engine)
