"""Runs that are paused, go on, and are changed while they go on."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import anyio
import msgspec
import pytest
from gym_runtime import UsageError
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import BrokerError, ModelRefused
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_control import RunControl, control_subject, encode_control
from gym_runtime.messages.stored_records import RunInfo
from gym_runtime.rpc.ask import NO_WORKER_GRACE_S
from gym_runtime.workers.run_controls import LOOK_S
from gym_testing.small_system import Engine, SmallSystem, answer, function_call, rollout_spec, row
from runtime.workers.agent_worker.agents import fault_of, row_of

pytestmark = pytest.mark.anyio

TURNS = 4


class Slow(Engine):
    """Each answer takes a second; the last of `TURNS` ends the rollout.

    Attributes:
        asked: how often each rollout was asked for each turn.
        at_work: calls in progress.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[tuple[str, int]]()
        self.at_work = self.most = 0

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        turn = sum(b"function_call_output" in bytes(item) for item in call.input)
        self.asked[context.rollout, turn] += 1
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        try:
            await anyio.sleep(1)
        except anyio.get_cancelled_exc_class():
            self.cancelled.put(context)
            raise
        finally:
            self.at_work -= 1
        if turn < TURNS - 1:
            return answer(function_call("work", call_id=f"c{turn}"))
        return answer("done")


async def published(system: SmallSystem, count: int, run: str = "run", **more: object) -> list[RolloutSpec]:
    tasks = [rollout_spec(row(), run=run, task=task, **more) for task in range(count)]
    await system.client.driver.open_run(RunInfo(run=run, total=count, agents=["tool_loop"]))
    await system.enqueue(*tasks)
    return tasks


@pytest.fixture
async def engine(system: SmallSystem) -> Slow:
    engine = Slow()
    await system.add_model(engine)
    return engine


def assert_each_turn_once(engine: Slow, count: int, run: str = "run") -> None:
    assert not engine.cancelled.items
    turns = {key: asked for key, asked in engine.asked.items() if key[0].startswith(f"{run}.")}
    assert turns == {(f"{run}.{task}.0", turn): 1 for task in range(count) for turn in range(TURNS)}


async def idle(engine: Slow) -> None:
    """The engine has nothing to do for long."""
    while engine.at_work:
        await anyio.sleep(0.5)
    asked = engine.asked.total()
    await anyio.sleep(60)
    assert engine.asked.total() == asked


async def all_done(system: SmallSystem, count: int, run: str = "run") -> list[RolloutRecord]:
    records = await system.records(count, run)
    assert [record.outcome for record in records] == [Completed()] * count
    assert len({record.rollout_id for record in records}) == count
    return records


async def test_a_paused_run_stops_at_its_turns_and_goes_on_there(system: SmallSystem, engine: Slow) -> None:
    await system.add_agent(slots=4)
    await published(system, 10)
    await anyio.sleep(1.5)
    for _ in range(3):
        assert (await system.client.pause("run")).paused
        await idle(engine)
        # Nobody is delivered anything: a pause costs nothing.
        assert (await system.bus.depth("agent-tool_loop")).waiting == 0
        assert not (await system.client.resume("run")).paused
        await anyio.sleep(2.5)
    records = await all_done(system, 10)
    assert_each_turn_once(engine, 10)
    assert all(record.attempt <= 4 for record in records)
    assert any(row_of(record)["_gym"]["resumed_turns"] for record in records)


async def test_another_run_goes_on_while_one_is_paused(system: SmallSystem, engine: Slow) -> None:
    await system.add_agent(slots=4)
    await published(system, 50)
    await anyio.sleep(0.5)
    await system.client.pause("run")
    await published(system, 8, "other")
    await all_done(system, 8, "other")
    assert_each_turn_once(engine, 8, "other")


@pytest.mark.parametrize("when", ["before", "while"])
async def test_a_pause_outlives_the_workers(system: SmallSystem, engine: Slow, when: str) -> None:
    await system.add_agent(name="one", slots=4)
    await published(system, 10)
    await anyio.sleep(1.5)
    await system.client.pause("run")
    if when == "before":
        await idle(engine)
    system.kill("one")
    await system.add_agent(name="two", slots=4)
    await idle(engine)
    await system.client.resume("run")
    await all_done(system, 10)
    if when == "before":  # a killed worker's turn that was not stored is asked again
        assert_each_turn_once(engine, 10)


async def test_a_worker_that_missed_the_signal_looks(system: SmallSystem, engine: Slow) -> None:
    await system.add_agent(slots=4)
    await published(system, 10)
    await anyio.sleep(1.5)
    await system.bus.append(control_subject("run"), encode_control(RunControl(run="run", paused=True)))
    await anyio.sleep(LOOK_S)
    await idle(engine)
    await system.client.resume("run")
    await all_done(system, 10)
    assert_each_turn_once(engine, 10)


@pytest.mark.slow
async def test_the_time_of_a_pause_does_not_count(system: SmallSystem, engine: Slow) -> None:
    await system.add_agent(slots=4)
    await published(system, 4, timeout_s=30.0)
    await anyio.sleep(1.5)
    await system.client.pause("run")
    await anyio.sleep(600)
    await system.client.resume("run")
    await all_done(system, 4)


async def test_a_rollout_without_a_journal_is_finished(system: SmallSystem, engine: Slow) -> None:
    await system.add_agent(slots=4)
    await published(system, 8, durability="result")
    await anyio.sleep(1.5)
    await system.client.pause("run")
    await all_done(system, 4)
    await idle(engine)
    await system.client.resume("run")
    await all_done(system, 8)
    assert_each_turn_once(engine, 8)


async def test_the_concurrency_of_a_run_holds_over_all_workers(system: SmallSystem, engine: Slow) -> None:
    await system.client.driver.open_run(RunInfo(run="run", total=60, agents=["tool_loop"]))
    await system.client.set_run("run", concurrency=3)
    for name in ("one", "two"):
        await system.add_agent(name=name, slots=8)
    await published(system, 60)
    await anyio.sleep(20)
    assert engine.most == 3
    await system.client.set_run("run", concurrency=6)
    await anyio.sleep(10)
    assert engine.most == 6
    await system.client.set_run("run", concurrency=None)
    await all_done(system, 60)
    assert engine.most > 6
    assert_each_turn_once(engine, 60)


async def test_limits_hold_for_rollouts_that_start_later(system: SmallSystem, engine: Slow) -> None:
    await system.add_agent(slots=4)
    await published(system, 8)
    await anyio.sleep(1.5)
    await system.client.set_run("run", timeout_s=2.5, max_attempts=1)
    records = await system.records(8)
    outcomes = Counter(record.outcome == Completed() for record in records)
    assert outcomes == {True: 4, False: 4}
    assert fault_of(next(one for one in records if one.outcome != Completed()))[0] == "deadline"


async def test_a_paused_run_can_be_cancelled(system: SmallSystem, engine: Slow) -> None:
    await system.add_agent(slots=4)
    await published(system, 10)
    await anyio.sleep(1.5)
    await system.client.pause("run")
    await idle(engine)
    await system.client.cancel("run")
    await anyio.sleep(5)
    assert not await system.bus.counts("task.>")
    assert not await system.bus.latest("runs.run.control")
    with pytest.raises(UsageError, match="run 'run' is cancelled, and nothing can be changed"):
        await system.client.resume("run")


async def test_what_cannot_be_set_is_refused(system: SmallSystem) -> None:
    await published(system, 1)
    for wrong, message in (
        ({"concurrncy": 1}, "'concurrncy' cannot be set for a run: use one of concurrency, share"),
        (
            {"concurrency": 0},
            "invalid value '0' for concurrency; it must be a whole number from 1 to 2147483647",
        ),
        ({"timeout_s": "10m"}, "invalid value '10m' for timeout_s; it must be a number of seconds above 0"),
        ({"concurrency": 2, "max_turns": 0}, "invalid value '0' for max_turns; it must be a whole number"),
        ({"share": float("inf")}, "for share; it must be a number above 0, at most a million; null takes"),
    ):
        with pytest.raises(UsageError, match=message):
            await system.client.set_run("run", **wrong)
    assert await system.client.control_of("run") == RunControl(run="run")
    with pytest.raises(UsageError, match="there is no run 'other'"):
        await system.client.pause("other")


async def test_failed_rollouts_of_a_published_run_are_run_again(system: SmallSystem) -> None:
    refuses = Engine(ModelRefused("no such model"))
    await system.add_model(refuses, name="bad")
    await system.add_agent(slots=4)
    await published(system, 5)
    failed = await system.records(5)
    assert all(fault_of(record)[0] == "model" for record in failed)
    system.stop("bad")
    await system.add_model(Engine(answer("done")), name="good")
    assert await system.client.retry_failed("run") == 5
    records = await all_done(system, 5)
    assert {record.attempt for record in records} == {2}
    assert await system.client.retry_failed("run") == 0
    assert not await system.bus.latest("journal.run.*.*.*.task")
    async with system.client.driver.followed("run"):
        with pytest.raises(UsageError, match="a client has its failures already"):
            await system.client.retry_failed("run")


@pytest.mark.parametrize("steps", range(5))
async def test_interrupted_while_it_runs_failures_again_another_call_does_the_rest(
    system: SmallSystem, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    refuses = Engine(ModelRefused("no such model"))
    await system.add_model(refuses, name="bad")
    await system.add_agent(slots=4)
    await published(system, 1)
    await system.records(1)
    system.stop("bad")
    await system.add_model(Engine(answer("done")), name="good")
    forget, left = system.bus.forget, [steps]

    async def cut(pattern: str) -> None:
        if not left[0]:
            raise BrokerError("the connection is lost")
        left[0] -= 1
        await forget(pattern)

    with monkeypatch.context() as patched:
        patched.setattr(system.bus, "forget", cut)
        with pytest.raises(BrokerError):
            await system.client.retry_failed("run")
    await system.client.retry_failed("run")
    (record,) = await all_done(system, 1)
    assert (record.outcome, record.attempt) == (Completed(), 2)


async def test_two_clients_that_change_a_run_at_once_lose_nothing(system: SmallSystem) -> None:
    await published(system, 1)
    async with anyio.create_task_group() as tasks:
        for name in ("concurrency", "max_attempts", "max_turns"):
            tasks.start_soon(lambda name=name: system.client.set_run("run", **{name: 7}))
        tasks.start_soon(system.client.pause, "run")
    found = await system.client.control_of("run")
    assert (found.concurrency, found.max_attempts, found.max_turns, found.paused) == (7, 7, 7, True)
    with suppress(UsageError):
        assert await system.client.pause("run") == found


@pytest.mark.slow
async def test_runs_get_slots_by_their_shares_and_priorities(system: SmallSystem, engine: Slow) -> None:
    driver = system.client.driver
    for run, count, share in (("one", 150, 3.0), ("two", 150, None), ("first", 20, None)):
        await driver.open_run(RunInfo(run=run, total=count, agents=["tool_loop"], share=share))
    await system.client.set_run("first", priority=1)
    await system.client.set_run("two", share=1)
    await system.add_agent(slots=20)
    await driver.publish(rollout_spec(row(), run="one", task=task) for task in range(150))
    assert sum((await system.bus.counts("task.=.tool_loop.one.>")).values()) == 150
    await published(system, 150, "two")

    def turns(run: str) -> int:
        return sum(asked for (rollout, _), asked in engine.asked.items() if rollout.startswith(f"{run}."))

    await anyio.sleep(10)
    before = turns("one"), turns("two")
    await anyio.sleep(20)
    one, two = turns("one") - before[0], turns("two") - before[1]
    assert abs(one / (one + two) - 0.75) < 0.05
    (depth,) = (await system.client.status()).queues.values()
    assert depth.in_flight == 20, "of all queues"
    await published(system, 20, "first")
    await anyio.sleep(2 * TURNS)
    assert turns("first") >= 20, "all of it started as slots became free"
    await all_done(system, 20, "first")
    await all_done(system, 150, "one")
    await all_done(system, 150, "two")


@pytest.mark.parametrize("priority", [None, 1])
async def test_a_run_whose_environment_has_no_worker_leaves_half_of_the_slots_to_others(
    system: SmallSystem, engine: Slow, desk: LoadedEnvironment, priority: int | None
) -> None:
    driver = system.client.driver
    await driver.open_run(RunInfo(run="first", total=40, agents=["tool_loop"], priority=priority))
    await system.add_agent(slots=4)
    await driver.publish(
        rollout_spec(row(), run="first", task=task, environment="later", max_attempts=9) for task in range(40)
    )
    await anyio.sleep(1)
    await published(system, 8)
    with anyio.fail_after(8 * TURNS):
        await all_done(system, 8)
    # Those that have a slot failed after this time, before as now; the others wait for a worker.
    await anyio.sleep(NO_WORKER_GRACE_S)
    await system.add_resource(msgspec.structs.replace(desk, name="later"), name="resource-2")
    await all_done(system, 40, "first")
