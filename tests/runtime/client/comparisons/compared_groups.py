"""An environment that compares, on a small system."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
from gym_runtime.client import Client, RunInfo
from gym_runtime.environment import catalogue
from gym_runtime.errors import GymError
from gym_runtime.files.rows import expand, whole_groups
from gym_runtime.messages.calls import ModelAnswer, ModelCall
from gym_runtime.messages.outcomes import Failed, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.workers.adapter import CallContext
from gym_testing.background import hosting
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    answer,
)

CONTEST = Path(__file__).with_name("contest.py")


ROW: dict[str, Any] = {"responses_create_params": {"input": "go"}}


YES = answer("yes")


class Speaker:
    """A policy: what each rollout says, by its index; an error is raised."""

    def __init__(self, **said: Any) -> None:
        self.said: dict[str, str | GymError] = {name.removeprefix("r"): text for name, text in said.items()}
        self.asked: Counter[str] = Counter()

    async def __aenter__(self) -> Speaker:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        self.asked[context.rollout] += 1
        index = context.rollout.rpartition(".")[2]
        said = self.said.get(index, index)
        if isinstance(said, GymError):
            raise said
        return answer(said)


class Here:
    """A system whose environment ranks the rollouts of a group."""

    def __init__(self, system: SmallSystem) -> None:
        self.system = system
        self.loaded = catalogue.environment(str(CONTEST))
        self.contest: Any = vars(catalogue.load("environments", "contest"))["contest"]
        self.contest.reset()
        self.judge = Engine(YES)
        self.policy = Speaker()

    @property
    def gym(self) -> Client:
        return self.system.client

    async def start(self, **said: Any) -> None:
        self.policy = Speaker(**said)
        await self.system.add_resource(self.loaded)
        await self.system.add_model(self.policy)
        await self.system.add_model(self.judge, name="judge-1", pool="judge")
        await self.system.add_agent(slots=64)

    def rows(self, count: int = 1) -> list[dict[str, Any]]:
        return [{**ROW, "n": number} for number in range(count)]

    async def rollouts(self, count: int = 1, **more: Any) -> list[RolloutRecord]:
        made = self.gym.rollouts(self.rows(count), environment="contest", **{"repeats": 4, **more})
        with anyio.fail_after(3600):
            return [record async for record in made]

    def specs(self, run: str, count: int, repeats: int = 4, **more: Any) -> list[RolloutSpec]:
        lines = [msgspec.json.encode(row) for row in self.rows(count)]
        return whole_groups(list(expand(lines, run=run, environment="contest", repeats=repeats, **more)))

    async def published(self, count: int, repeats: int = 4) -> None:
        info = RunInfo(run="run", total=count * repeats, environments=["contest"], agents=["tool_loop"])
        await self.gym.driver.open_run(info)
        await self.gym.driver.publish(self.specs("run", count, repeats))

    @asynccontextmanager
    async def another(self) -> AsyncGenerator[Client]:
        async with self.system.broker.connect() as bus, hosting() as tasks:
            yield Client(bus, tasks)


def rewards(records: list[RolloutRecord]) -> dict[tuple[int, int], float | None]:
    return {(record.task_index, record.rollout_index): record.reward for record in records}


def about(record: RolloutRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.row)["_gym"]


def fault(record: RolloutRecord) -> Any:
    assert isinstance(record.outcome, Failed), record.outcome
    return record.outcome.fault


async def groups(here: Here, **more: Any) -> list[Any]:
    made = here.gym.groups(here.rows(2), environment="contest", repeats=3, **more)
    with anyio.fail_after(3600):
        return [group async for group in made]
