"""Rollouts wait between their turns while the model's engines are too busy."""

from __future__ import annotations

import anyio
import pytest
from gym_agents import single_turn
from gym_runtime.adapters import Rollout
from gym_runtime.environment import catalogue
from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_testing.small_system import Engine, SmallSystem, answer, rollout_spec, row
from runtime.workers.agent_worker.agents import fault_of
from runtime.workers.agent_worker.test_controls import (
    TURNS,
    Slow,
    all_done,
    assert_each_turn_once,
    idle,
    published,
)

pytestmark = pytest.mark.anyio

BUSY = "93% of the cache is in use"


class Full(Slow):
    """An engine that says when it is too busy; no call is sent to it then."""

    held = ""


@pytest.fixture
async def engine(system: SmallSystem) -> Full:
    engine = Full()
    await system.add_model(engine)
    return engine


async def test_rollouts_wait_between_turns_and_their_time_does_not_count(
    system: SmallSystem, engine: Full
) -> None:
    await system.add_agent(slots=4)
    await published(system, 10, timeout_s=60.0)
    await anyio.sleep(1.5)
    for _ in range(2):
        engine.held = BUSY
        await anyio.sleep(3)
        await idle(engine)
        assert [one.held for one in (await system.client.status()).workers if one.kind == "model"] == [BUSY]
        await anyio.sleep(120)
        engine.held = ""
        await anyio.sleep(2.5)
    records = await all_done(system, 10)
    assert_each_turn_once(engine, 10)
    assert {record.attempt for record in records} == {1}, "nothing was given back"


async def test_no_rollout_starts_while_it_waits(system: SmallSystem, engine: Full, ledger: object) -> None:
    engine.held = BUSY
    await anyio.sleep(3)
    await system.add_agent(slots=4)
    await published(system, 8)
    await idle(engine)
    assert not engine.asked
    assert not getattr(ledger, "items", None), "no session was opened"
    engine.held = ""
    await all_done(system, 8)
    assert_each_turn_once(engine, 8)


async def test_one_worker_with_room_is_enough(system: SmallSystem, engine: Full) -> None:
    other = Full()
    await system.add_model(other, name="model-2")
    await system.add_agent(slots=4)
    engine.held = BUSY
    await published(system, 8)
    await all_done(system, 8)
    assert engine.asked.total() + other.asked.total() == 8 * TURNS


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_a_worker_that_ends_meanwhile_loses_nothing(
    system: SmallSystem, engine: Full, end: str
) -> None:
    await system.add_agent(name="one", slots=4)
    await published(system, 10)
    await anyio.sleep(1.5)
    engine.held = BUSY
    await anyio.sleep(3)
    await idle(engine)
    (system.kill if end == "kill" else system.stop)("one")
    await system.add_agent(name="two", slots=4)
    await anyio.sleep(5)  # it may ask once before it knows the model's workers
    await idle(engine)
    engine.held = ""
    await all_done(system, 10)
    assert_each_turn_once(engine, 10)


async def test_a_run_that_is_paused_meanwhile_is_parked_at_once(system: SmallSystem, engine: Full) -> None:
    agent = await system.add_agent(slots=4)
    await published(system, 10)
    await anyio.sleep(1.5)
    engine.held = BUSY
    await anyio.sleep(3)
    await idle(engine)
    assert agent.in_use == 4
    await system.client.pause("run")
    await anyio.sleep(1)
    assert agent.in_use == 0
    await system.client.resume("run")
    engine.held = ""
    await all_done(system, 10)
    assert_each_turn_once(engine, 10)


async def test_a_question_that_is_given_up_meanwhile_leaves_the_rollout_its_deadline(
    system: SmallSystem, engine: Full
) -> None:
    given_up: list[bool] = []

    class Hasty:
        async def run(self, rollout: Rollout) -> None:
            await rollout.respond()
            engine.held = BUSY
            await anyio.sleep(3)
            with anyio.move_on_after(2) as scope:
                await rollout.respond()
            given_up.append(scope.cancelled_caught)
            engine.held = ""
            await anyio.sleep_forever()

    await system.add_agent({"tool_loop": Hasty()})
    await system.enqueue(rollout_spec(row(), timeout_s=60.0))
    (record,) = await system.records(1, within_s=120)
    assert (given_up, fault_of(record)[0]) == ([True], "deadline")


async def test_an_attempt_that_failed_as_all_engines_went_away_is_repeated_when_one_is_back(
    system: SmallSystem, engine: Full
) -> None:
    attempts: list[bool] = []

    class Unpaused:
        """An agent that asks without a pause, as programs do."""

        async def run(self, rollout: Rollout) -> None:
            attempts.append(bool(engine.held))
            if len(attempts) == 1:
                engine.held = "nothing listens there"
                await anyio.sleep(3)
                raise ModelUnavailable("nothing listens there", stage="model")
            await rollout.respond()

    await system.add_agent({"tool_loop": Unpaused()})
    await system.enqueue(rollout_spec(row(), timeout_s=60.0))
    await anyio.sleep(300)
    assert attempts == [False]
    engine.held = ""
    (record,) = await system.records(1, within_s=30)
    assert (record.outcome, attempts) == (Completed(), [False, False])


@pytest.mark.slow
async def test_a_rollout_whose_judge_is_away_waits_before_its_verdict(system: SmallSystem) -> None:
    class Away(Engine):
        held = ""

    judge = Away(answer("CORRECT"))
    await system.add_resource(catalogue.environment("lc_judge"), name="resource-judged")
    await system.add_model(judge, name="judge-1", pool="judge")
    await system.add_model(Engine(answer(r"\boxed{A}")))
    await system.add_agent({"single_turn": single_turn.Agent()})
    records: list[RolloutRecord] = []

    async def run() -> None:
        rows = [{"responses_create_params": {"input": "Who?"}, "expected_answer": "A"}]
        async for record in system.client.rollouts(rows, environment="lc_judge", timeout_s=60.0):
            records.append(record)

    async with anyio.create_task_group() as tasks:
        judge.held = "nothing listens there"
        await anyio.sleep(3)
        tasks.start_soon(run)
        await anyio.sleep(300)
        assert not records
        judge.held = ""
    assert [(record.reward, record.outcome, record.attempt) for record in records] == [(1.0, Completed(), 1)]
