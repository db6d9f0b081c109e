"""An author's code that cancels itself, wherever it is called: its call fails, and the worker goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, ClassVar

import pytest
from gym_agents.step_loop import Agent as StepLoop
from gym_runtime import Candidates, Environment, Episode, Reply, Session, Step, Task, Verdict, tool
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall, Rollout
from gym_runtime.environment.verdict import Pending
from gym_runtime.messages import calls
from gym_runtime.messages.outcomes import Completed
from gym_runtime.messages.rollout_spec import Candidate
from gym_testing.background import SOON_S
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    environment,
    function_call,
    rollout_spec,
    row,
    small_system,
)
from msgspec import Raw
from runtime.workers.agent_worker.agents import fault_of, message_of
from runtime.workers.hosting import call, request

pytestmark = [
    pytest.mark.virtual_time,
    pytest.mark.anyio,
    pytest.mark.parametrize("way", ["task", "raise", "self"]),
]


@pytest.fixture
async def system() -> AsyncGenerator[SmallSystem]:
    async with small_system() as system:
        yield system


async def leak(way: str) -> None:
    if way == "raise":
        raise asyncio.CancelledError
    task = asyncio.current_task()
    if way == "task":
        task = asyncio.get_running_loop().create_task(asyncio.sleep(60))
    assert task is not None
    task.cancel()
    if way == "task":
        await task


class LeakTask(Task):
    way: str = ""
    at: str = ""

    async def pass_by(self, place: str) -> None:
        if self.at == place:
            await leak(self.way)


class Leaking(Session[LeakTask]):
    async def open(self) -> None:
        await self.task.pass_by("open")

    @tool
    async def work(self) -> str:
        await self.task.pass_by("tool")
        return "worked"

    async def call_unknown_tool(self, name: str, arguments: str) -> str | None:
        await self.task.pass_by("tool")
        return None

    async def verify(self, reply: Reply) -> Verdict:
        await self.task.pass_by("verify")
        return Verdict(1.0)

    async def close(self) -> None:
        await self.task.pass_by("close")


class LeakingEpisode(Episode[LeakTask]):
    async def reset(self) -> str:
        await self.task.pass_by("reset")
        return "go"

    async def step(self, reply: Reply) -> Step:
        await self.task.pass_by("step")
        return Step(reward=1.0, terminated=True)


async def worker_goes_on(system: SmallSystem, **more: Any) -> None:
    (record,) = await system.make(rollout_spec(row(), run="second", **more))
    assert (record.outcome, record.reward) == (Completed(), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["open", "work", "unknown", "verify", "close"])
async def test_of_a_session(system: SmallSystem, at: str, way: str) -> None:
    await system.add_resource(environment(Environment(resource=Leaking, description="Leaks.")))
    turns = [function_call(at), "done"] if at in ("work", "unknown") else ["done"]
    await system.add_model(Engine(*[answer(turn) for turn in turns]))
    await system.add_agent()
    place = "tool" if at in ("work", "unknown") else at
    (record,) = await system.make(rollout_spec(row(way=way, at=place)))
    if at == "close":  # the verdict was there
        assert (record.outcome, record.reward) == (Completed(), 1.0)
    else:
        assert fault_of(record) == ("resource", place, False)
        assert "the runtime had cancelled nothing" in message_of(record)
        assert record.reward is None
    await worker_goes_on(system)


@pytest.mark.parametrize("at", ["reset", "step"])
async def test_of_an_episode(system: SmallSystem, at: str, way: str) -> None:
    await system.add_resource(environment(Environment(resource=LeakingEpisode, description="Leaks.")))
    await system.add_model(Engine(answer("done")))
    await system.add_agent({"step_loop": StepLoop()})
    (record,) = await system.make(rollout_spec(row(way=way, at=at), agent="step_loop"))
    assert fault_of(record) == ("resource", at, False)
    await worker_goes_on(system, agent="step_loop")


async def test_of_a_comparison(system: SmallSystem, way: str) -> None:
    async def verify(task: LeakTask, reply: Reply) -> Pending:
        return Pending(0.0)

    async def compare(candidates: Candidates[LeakTask]) -> list[Verdict]:
        await candidates.task.pass_by("compare")
        return [Verdict(1.0) for _ in candidates.features(float)]

    definition = Environment(resource=verify, compare=compare, description="Leaks.")
    await system.add_resource(environment(definition))
    candidate = Candidate(rollout_index=0, features=Raw(b"0.0"))

    async def compared(given: bytes) -> calls.RpcReply:
        asked = calls.Compare(session="compare", task=Raw(given), candidates=[candidate])
        return await call(system.bus, "resource.sample", request(asked, within_s=SOON_S))

    fault = (await compared(row(way=way, at="compare"))).fault
    assert fault is not None
    assert (fault.kind, fault.stage) == ("resource", "compare")
    assert (await compared(row())).fault is None


async def test_of_an_agent(system: SmallSystem, way: str) -> None:
    class Agent:
        async def run(self, rollout: Rollout) -> None:
            await rollout.respond()
            if b"way" in bytes(rollout.task.row):
                await leak(way)

    await system.add_resource(environment(Environment(resource=Leaking, description="Leaks.")))
    await system.add_model(Engine(answer("done")))
    worker = await system.add_agent({"tool_loop": Agent()})
    (record,) = await system.make(rollout_spec(row(way=way)))
    assert fault_of(record) == ("runtime", "agent", False)
    assert worker.in_use == 0
    await worker_goes_on(system)


class LeakingEngine(Engine):
    ways: ClassVar[list[str]] = []

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        if self.ways:
            await leak(self.ways.pop())
        return await super().respond(call, context)


@pytest.mark.parametrize("pool", ["policy", "judge"])
async def test_of_a_model_adapter(system: SmallSystem, pool: str, way: str) -> None:
    async def verify(task: Task, reply: Reply, judge: Any) -> Verdict:
        await judge.ask("Is it right?")
        return Verdict(1.0)

    definition = Environment(resource=verify, description="Asks.", roles=("judge",))
    await system.add_resource(environment(definition))
    for name in ("policy", "judge"):
        engine = LeakingEngine if name == pool else Engine
        await system.add_model(engine(answer("done")), name=f"model-{name}", pool=name)
    await system.add_agent()
    LeakingEngine.ways.append(way)
    (record,) = await system.make(rollout_spec(row(), roles={"judge": "judge"}))
    assert fault_of(record) == ("model", "judge" if pool == "judge" else "model", False)
    await worker_goes_on(system, roles={"judge": "judge"})
