"""The system in one process that authors test with."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import gym_testing
import pytest
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.adapters import Rollout
from gym_runtime.environment import catalogue
from gym_runtime.errors import ModelRefused, TaskError, UsageError
from gym_runtime.messages.outcomes import Completed, Failed
from gym_testing.small_system import (
    Engine,
    Hang,
    SmallSystem,
    Turn,
    answer,
    environment,
    rollout_spec,
    row,
    small_system,
)

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(float("4" in reply.text))


async def populate(system: SmallSystem, *turns: Turn, **more: Any) -> Engine:
    """The parts of a system but its agents."""
    engine = Engine(*turns, **more)
    await system.add_resource(environment(Environment(resource=verify, description="Sums.")))
    await system.add_model(engine)
    return engine


def test_the_example_in_its_docstring() -> None:
    done = doctest.testmod(importlib.import_module("gym_testing.small_system"))
    assert (done.failed, done.attempted > 3) == (0, True)


async def test_one_verdict_needs_no_system() -> None:
    sums = Environment(resource=verify, description="Sums.")
    for known in (sums, environment(sums)):
        assert await gym_testing.verify(known, row(), "It is 4.") == Verdict(1.0)
    assert await gym_testing.verify(sums, row()) == Verdict(0.0)
    with pytest.raises(TaskError, match="Expected `object`"):
        await gym_testing.verify(sums, b"[")
    with pytest.raises(UsageError, match=r"the answers of 'judge' are a list: \['yes'\]"):
        await gym_testing.verify(sums, row(), roles={"judge": "yes"})


def test_every_name_is_loaded() -> None:
    assert all(getattr(gym_testing, name) for name in gym_testing.__all__)


class Twice:
    """An agent that calls the model twice."""

    async def run(self, rollout: Rollout) -> None:
        await rollout.respond()
        await rollout.respond()


async def test_an_agent_of_the_author_runs_on_it() -> None:
    async with small_system() as system:
        engine = await populate(system, answer("3"), answer("4"))
        await system.add_agent({"twice": Twice()})
        [record] = await system.make(rollout_spec(row(), agent="twice"))
    assert (record.outcome, record.reward, len(engine.calls.items)) == (Completed(), 1.0, 2)


async def test_an_error_of_the_engine_is_the_rollouts() -> None:
    async with small_system() as system:
        await populate(system, ModelRefused("no such model", stage="model"))
        await system.add_agent()
        [record] = await system.make(rollout_spec(row()))
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.fault.name, record.reward) == ("ModelRefused", None)


async def test_a_killed_agents_rollout_goes_on_at_another() -> None:
    async with small_system() as system:
        engine = await populate(system, answer("4"), by_attempt={1: [Hang()]})
        await system.add_agent(name="agent-1")
        await system.enqueue(rollout_spec(row()))
        await engine.calls.until(1)
        system.kill("agent-1")
        await system.add_agent(name="agent-2")
        [record] = await system.records(1)
    assert (record.outcome, record.reward) == (Completed(), 1.0)
    assert len(engine.calls.items) == 2


async def test_its_client_makes_rollouts_of_an_environment_of_the_catalogue() -> None:
    rows = [{"responses_create_params": {"input": "What is the weather?"}}]
    async with small_system() as system:
        await system.add_resource(catalogue.environment("example_single_tool_call"))
        await system.add_model(Engine(answer("Cold.")))
        await system.add_agent()
        rollouts = system.client.rollouts(rows, environment="example_single_tool_call", repeats=2)
        assert [record.reward async for record in rollouts] == [1.0, 1.0]


async def test_a_misspelt_name_is_refused_with_the_near_one() -> None:
    async with small_system() as system:
        await populate(system, answer("4"))
        await system.add_agent()
        with pytest.raises(UsageError, match="serves the environment 'sampel'; did you mean 'sample'"):
            await system.make(rollout_spec(row(), environment="sampel"))
        with pytest.raises(UsageError, match="serves the agent 'tool_lop'; did you mean 'tool_loop'"):
            await system.make(rollout_spec(row(), agent="tool_lop"))
