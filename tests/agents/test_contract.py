"""What every agent of the catalogue keeps: it ends, it leaves errors alone, and it has no state."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest
from gym_runtime import Environment, Episode, Reply, Step, Task
from gym_runtime.adapters import Agent
from gym_runtime.environment import catalogue
from gym_runtime.errors import ModelRefused
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, RolloutRecord, Truncated
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_testing.background import settled
from gym_testing.small_system import (
    Engine,
    Hang,
    SmallSystem,
    Turn,
    answer,
    environment,
    function_call,
    reasoning,
    rollout_spec,
    row,
    small_system,
)
from tables import table

# A process knows no virtual time: test_black_box and the tests of acp hold the same promises in real time.
NAMES = [name for name in catalogue.names("agents") if name not in {"black_box", "acp"}]
ROLES = {"user": "###STOP###", "critic": "[[ACCEPT]]", "thinker": "It is so."}
"""What the models that agents ask in roles answer, so that they ask no further."""
ASKED = {"orchestrator": 3, "reflection": 5, "rewoo": 2}
"""How often agents ask the model that do so several times, where it says hello each time."""
OF_OTHERS = {"proposer_critic": 1}
"""How many turns the agent's other trained seats have."""
pytestmark = [pytest.mark.virtual_time, pytest.mark.anyio, pytest.mark.parametrize("name", NAMES)]


class Hall(Episode[Task]):
    """An environment for every kind of agent: it ends at the first answer that has a message."""

    async def reset(self) -> str:
        return "begin"

    async def step(self, reply: Reply) -> Step:
        return Step(terminated=bool(reply.messages), reward=1.0)

    async def verify(self, reply: Reply) -> Any:
        verdict = await super().verify(reply)
        return msgspec.structs.replace(verdict, reward=float(len(reply.messages)))


def agent(name: str) -> Agent:
    return catalogue.load("agents", name).Agent()


async def hall(system: SmallSystem, name: str, engine: Engine) -> None:
    await system.add_resource(environment(Environment(resource=Hall, description=""), "sample"))
    await system.add_model(engine)
    for role, text in ROLES.items():
        await system.add_model(Engine(answer(text)), name=f"{role}-1", pool=role)
    await system.add_agent({name: agent(name)}, slots=64)


def spec(name: str, **more: Any) -> RolloutSpec:
    line = row(simulated_user={"goal": "Be greeted."})
    return rollout_spec(line, agent=name, roles={role: role for role in ROLES}, **more)


async def play(name: str, *turns: Turn, **more: Any) -> RolloutRecord:
    async with small_system() as system:
        await hall(system, name, Engine(*turns))
        (record,) = await system.make(spec(name, **more))
    return record


async def test_its_module_and_its_class_say_what_it_does(name: str) -> None:
    module = catalogue.load("agents", name)
    assert inspect.getdoc(module)
    assert inspect.getdoc(module.Agent)
    assert inspect.iscoroutinefunction(module.Agent().run)


async def test_a_message_ends_it(name: str) -> None:
    record = await play(name, answer("hello"))
    assert record.outcome == Completed()
    asked = ASKED.get(name, 1)
    assert (record.reward, record.turns) == (asked, asked + OF_OTHERS.get(name, 0))


async def test_an_incomplete_answer_ends_it_as_truncated(name: str) -> None:
    incomplete = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    record = await play(name, answer("hel", **incomplete))
    assert record.outcome == Truncated(reason="max_output_tokens")
    assert record.reward is not None


@table("turn", [answer(function_call("x")), answer(reasoning("hm")), answer()])
async def test_a_limit_of_turns_ends_it_whatever_the_model_does(name: str, turn: Turn) -> None:
    record = await play(name, turn, max_turns=3, timeout_s=1e6)
    assert isinstance(record.outcome, Completed | Truncated)
    assert record.turns <= 3


async def test_an_error_passes_through_it(name: str) -> None:
    record = await play(name, ModelRefused("no"))
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.fault.name, record.outcome.fault.message) == ("ModelRefused", "no")


async def test_a_cancellation_passes_through_it(name: str) -> None:
    async with small_system() as system:
        engine = Engine(Hang())
        await hall(system, name, engine)
        await system.enqueue(spec(name))
        await engine.calls.until(1)
        await system.bus.publish("cancel.run", b"")
        (record,) = await system.records(1)
        await settled(lambda: engine.cancelled.items)
    assert record.outcome == Cancelled()


async def test_one_instance_serves_many_rollouts_at_once(name: str) -> None:
    class Slow(Engine):
        async def respond(self, call: Any, context: Any) -> Any:
            given = await super().respond(call, context)
            await self.calls.until(40)  # so that all are in the middle of it at once
            return given

    async with small_system() as system:
        engine = Slow(answer(reasoning("hm"), "bye"))
        await hall(system, name, engine)
        records = await system.make(*[spec(name, task=task) for task in range(40)])
    assert {record.task_index for record in records} == set(range(40))
    asked = ASKED.get(name, 1)
    assert {(type(record.outcome), record.reward, record.turns) for record in records} == {
        (Completed, asked, asked + OF_OTHERS.get(name, 0))
    }
