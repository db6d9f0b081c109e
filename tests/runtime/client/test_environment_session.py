"""Sessions and verdicts for a caller that is no agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from gym_agents.step_loop import Agent
from gym_runtime import Environment, Episode, Model, Reply, Step, Task, Verdict
from gym_runtime.client import Client
from gym_runtime.environment import catalogue
from gym_runtime.errors import DeadlineExceeded, ResourceError, TaskError, UsageError
from gym_runtime.workers.resource_worker import ResourceWorker
from gym_testing.background import settled
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    environment,
    function_call,
    message,
    small_system,
)
from runtime.client.running_client import NAME, rows, running_client

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]
INCREMENT = function_call("increment_counter", '{"count": 1}', "c1")
ANSWERED = {"type": "function_call_output", "call_id": "c1", "output": "{}"}


class CountdownTask(Task):
    start: int


class Countdown(Episode[CountdownTask]):
    """Say the numbers down to zero."""

    async def reset(self) -> str:
        self.left = self.task.start
        return f"Start at {self.left}."

    async def step(self, reply: Reply) -> Step:
        right = reply.text == str(self.left)
        self.left -= 1
        return Step(observation="next", reward=0.5 * right, terminated=self.left == 0)


async def judged(task: CountdownTask, reply: Reply, judge: Model) -> Verdict:
    said = await judge.ask(reply.text)
    return Verdict(float(said.text == "yes"))


EPISODE = environment(Environment(resource=Countdown, description="Count."), "countdown_here")
# As benchmarks have it.
REPEATED = environment(Environment(resource=Countdown, description="Count.", repeats=8), "repeated_here")
JUDGED = environment(Environment(resource=judged, roles=("judge",), description="Ask."), "judged_here")


@asynccontextmanager
async def served() -> AsyncGenerator[tuple[SmallSystem, Client, ResourceWorker]]:
    """Environments that only the workers know: no module of their names is installed here."""
    async with small_system() as system:
        worker = await system.add_resource(EPISODE, REPEATED, JUDGED)
        yield system, system.client, worker


async def test_a_session_is_driven_by_the_caller_and_ends_with_its_context() -> None:
    async with running_client() as here:
        async with here.gym.session(rows(1)[0], environment=NAME) as session:
            assert [tool["name"] for tool in session.tools] == ["increment_counter", "get_counter_value"]
            assert session.environment == NAME
            await session.call("increment_counter", {"count": 1})
            assert "4" in await session.call("get_counter_value")
            assert "Not Found" in await session.call("no_such_tool")
            assert "validation_error" in await session.call("increment_counter", '{"count": "x"}')
            verdict = await session.verify("done")
            assert verdict.reward == 1.0
            assert len(here.resource.sessions) == 1
        await settled(lambda: not len(here.resource.sessions))
        assert not here.engine.calls.items
        assert await here.gym.runs() == []


async def test_a_session_is_of_one_rollout_also_where_a_run_repeats_each_row() -> None:
    async with served() as (_, client, _):
        row = {"responses_create_params": {"input": "Count."}, "start": 1}
        async with client.session(row, environment="repeated_here") as session:
            assert (await session.step("1")).reward == 0.5


async def test_a_session_is_closed_also_when_its_body_raises() -> None:
    async with running_client() as here:
        with pytest.raises(ValueError, match="mine"):
            async with here.gym.session(rows(1)[0], environment=NAME):
                raise ValueError("mine")
        await settled(lambda: not len(here.resource.sessions))


async def test_a_session_moves_to_another_worker_when_its_own_ends() -> None:
    async with running_client() as here, here.gym.session(rows(1)[0], environment=NAME) as session:
        await session.call("increment_counter", {"count": 1})
        await here.system.add_resource(catalogue.environment(NAME), name="resource-2")
        here.system.kill("resource-1")
        assert "4" in await session.call("get_counter_value")
        assert (await session.verify("done")).reward == 1.0


async def test_a_response_is_verified_with_the_calls_that_it_holds() -> None:
    async with running_client() as here:
        row = rows(1)[0]
        for response, reward in (
            ([INCREMENT, ANSWERED, message("done")], 1.0),
            ([message("done")], 0.0),
            ("done", 0.0),
            # A call without an output was not executed.
            ([INCREMENT], 0.0),
            ({"output": [INCREMENT, ANSWERED]}, 1.0),
        ):
            assert (await here.gym.verify(row, response, environment=NAME)).reward == reward
        await settled(lambda: not len(here.resource.sessions))


async def test_a_row_that_does_not_fit_and_a_response_that_is_none_are_refused() -> None:
    async with running_client() as here:
        with pytest.raises(TaskError, match="initial_count"):
            await here.gym.verify({"responses_create_params": {"input": "x"}}, "done", environment=NAME)
        with pytest.raises(TaskError, match="the response has no 'output'"):
            completion = {"choices": [{"message": {"role": "assistant", "content": "done"}}]}
            await here.gym.verify(rows(1)[0], completion, environment=NAME)
        with pytest.raises(TaskError, match="the response cannot be read"):
            await here.gym.verify(rows(1)[0], b'{"output": 3}', environment=NAME)
        with pytest.raises(TaskError, match="the response is a NoneType, and no text, list of items or"):
            await here.gym.verify(rows(1)[0], None, environment=NAME)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="there is no environment"):
            await here.gym.verify(rows(1)[0], "done", environment="no_such_thing_at_all")


# -- environments whose module is not here ------------------------------------------------------------


async def test_an_episode_that_only_the_workers_know_is_played_step_by_step() -> None:
    row = {"responses_create_params": {"input": []}, "start": 2}
    async with served() as (_, gym, worker):
        async with gym.session(row, environment="countdown_here") as session:
            assert session.observation[0]["content"] == "Start at 2."
            first = await session.step("2")
            assert (first.reward, first.terminated, first.items[0]["content"]) == (0.5, False, "next")
            assert (await session.step("1")).terminated
            assert (await session.verify("1")).reward == 1.0
        transcript = [message("2"), {"type": "message", "role": "user", "content": "next"}, message("9")]
        assert (await gym.verify(row, transcript, environment="countdown_here")).reward == 0.5
        await settled(lambda: not len(worker.sessions))


async def test_a_step_where_there_are_none_is_an_error_and_no_reward() -> None:
    async with running_client() as here, here.gym.session(rows(1)[0], environment=NAME) as session:
        with pytest.raises(ResourceError, match="is not an Episode"):
            await session.step("x")


async def test_rollouts_of_an_environment_that_only_the_workers_know() -> None:
    row = {"responses_create_params": {"input": []}, "start": 1}
    async with served() as (system, gym, _):
        await system.add_model(Engine(answer("1")))
        await system.add_agent({"step_loop": Agent()})
        named = {**row, "agent_ref": {"name": "countdown_here_simple_agent"}}
        for given, name in ((row, "countdown_here"), (named, None)):
            (record,) = [record async for record in gym.rollouts([given], environment=name)]
            assert (record.reward, record.environment) == (0.5, "countdown_here")
        with pytest.raises(TaskError, match="'start' is missing"):
            await anext(
                gym.rollouts([{"responses_create_params": {"input": []}}], environment="countdown_here")
            )
        async with gym.standing_run(environment="countdown_here") as run:
            assert (await run.rollout(row)).reward == 0.5


async def test_a_verdict_that_needs_a_judge_asks_it() -> None:
    row = {"responses_create_params": {"input": "x"}, "start": 1}
    async with served() as (system, gym, _):
        await system.add_model(Engine(answer("yes")), pool="judge")
        assert (await gym.verify(row, "It is so.", environment="judged_here")).reward == 1.0


async def test_a_session_whose_workers_are_all_gone_ends_at_its_time_limit() -> None:
    async with (
        running_client() as here,
        here.gym.session(rows(1)[0], environment=NAME, timeout_s=5) as session,
    ):
        here.system.kill("resource-1")
        with pytest.raises(DeadlineExceeded):
            await session.verify("done")
