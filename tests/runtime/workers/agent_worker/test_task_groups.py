"""What an agent raises in its own task group."""

from __future__ import annotations

import asyncio
import json
from random import Random

import anyio
import pytest
from gym_runtime.adapters import Rollout
from gym_runtime.bus.interface import QueueDepth
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import Fenced, ModelRefused, ModelUnavailable
from gym_runtime.messages.outcomes import Cancelled, Completed
from gym_runtime.messages.rollout_spec import encode_spec
from gym_testing.background import Mailbox, settled
from gym_testing.memory import Fate, Passing
from gym_testing.small_system import (
    Engine,
    Hang,
    SmallSystem,
    answer,
    rollout_spec,
    row,
    small_system,
)
from runtime.workers.agent_worker.agents import fault_of, message_of, settled_depth

pytestmark = pytest.mark.anyio


class Grouped:
    """Raises in nested task groups, beside a task that is cancelled for it; then it asks the model."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = errors
        self.asked = 0

    async def run(self, rollout: Rollout) -> None:
        self.asked += 1
        if self.asked == 1:
            raise BaseExceptionGroup("outer", [BaseExceptionGroup("inner", list(self.errors))])
        await rollout.respond()


@pytest.mark.parametrize(
    "errors",
    [
        [ModelUnavailable("503")],
        [ModelUnavailable("503"), asyncio.CancelledError()],
        [asyncio.CancelledError(), ExceptionGroup("more", [ModelUnavailable("503"), ValueError("x")])],
    ],
)
async def test_an_error_in_an_agents_task_group_is_as_retryable_as_alone(
    system: SmallSystem, errors: list[BaseException]
) -> None:
    await system.add_model(Engine(answer("done")))
    await system.add_agent({"tool_loop": Grouped(*errors)})
    (record,) = await system.make(rollout_spec(row()))
    assert (record.outcome, record.attempt) == (Completed(), 2)


@pytest.mark.parametrize(
    ("errors", "kind", "said"),
    [
        ([ModelUnavailable("503"), ModelRefused("no")], "model", "no"),
        ([ValueError("a bug"), asyncio.CancelledError()], "runtime", "a bug"),
        ([asyncio.CancelledError()], "runtime", "its code raised CancelledError"),
    ],
)
async def test_an_agents_group_of_errors_fails_its_rollout_by_the_one_that_matters(
    system: SmallSystem, errors: list[BaseException], kind: str, said: str
) -> None:
    worker = await system.add_agent({"tool_loop": Grouped(*errors)})
    (record,) = await system.make(rollout_spec(row()))
    assert fault_of(record)[0] == kind
    assert said in message_of(record)
    assert worker.in_use == 0
    # The worker goes on.
    (record,) = await system.make(rollout_spec(b"{}", run="second"))
    assert fault_of(record)[0] == "task"


async def test_an_attempt_that_is_fenced_in_a_task_group_stops_in_silence(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()

    class Overtaken:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.attempt)
            raise ExceptionGroup("group", [ModelRefused("no"), ExceptionGroup("inner", [Fenced("gone")])])

    worker = await system.add_agent({"tool_loop": Overtaken()})
    await system.enqueue(rollout_spec(row()))
    await begun.until(1)
    await settled(lambda: worker.in_use == 0)
    assert await system.bus.counts("rollout.run.>") == {}


async def test_a_cancellation_from_outside_beats_what_an_agents_group_raises(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()

    class Cleaning:
        async def run(self, rollout: Rollout) -> None:
            async def fails_when_stopped() -> None:
                try:
                    await anyio.sleep_forever()
                finally:
                    raise ModelUnavailable("the engine hung up")

            begun.put(rollout.attempt)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fails_when_stopped())

    await system.add_agent({"tool_loop": Cleaning()})
    await system.enqueue(rollout_spec(row()))
    await begun.until(1)
    await system.bus.publish("cancel.run", b"")
    (record,) = await system.records(1)
    assert record.outcome == Cancelled()
    assert begun.items == [1]


class LoseAcks:
    """Loses the first acknowledgement."""

    def __init__(self) -> None:
        self.lost = 0

    def fate(self, passing: Passing, dice: Random) -> Fate:
        if passing.kind == "ack" and not self.lost:
            self.lost += 1
            return Fate(drop=True)
        return Fate()


async def test_a_task_whose_result_is_there_is_acked_without_work(desk: LoadedEnvironment) -> None:
    faults = LoseAcks()
    engine = Engine(answer("done"))
    async with small_system(faults) as system:
        await system.add_resource(desk)
        await system.add_model(engine)
        await system.add_agent()
        await system.make(rollout_spec(row()))
        await anyio.sleep(60)
        assert faults.lost == 1
        assert len(engine.calls.items) == 1
        assert await system.bus.counts("rollout.run.>") == {"rollout.run.0.0": 1}
        await settled_depth(system)


async def test_of_two_attempts_at_once_one_result_stands(system: SmallSystem) -> None:
    begun: Mailbox[str] = Mailbox()
    gate = anyio.Event()

    class Slow:
        async def run(self, rollout: Rollout) -> None:
            begun.put("slow")
            await gate.wait()
            await rollout.respond()

    await system.add_model(Engine(answer("done")))
    await system.add_agent({"tool_loop": Slow()}, name="slow")
    await system.enqueue(rollout_spec(row()))
    await begun.until(1)
    # Frozen for longer than its delivery is waited for, so that somebody else gets the task.
    system.broker["slow"].freeze()
    await system.add_agent(name="quick")
    (record,) = await system.records(1)
    system.broker["slow"].thaw()
    gate.set()
    await anyio.sleep(60)
    assert record.worker == "quick"
    assert await system.bus.counts("rollout.run.>") == {"rollout.run.0.0": 1}
    await settled_depth(system)


async def test_a_task_that_cannot_be_read_is_dropped_and_the_next_is_made(
    system: SmallSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    await system.add_model(Engine(answer("done")))
    await system.add_agent()
    await system.bus.enqueue("task.tool_loop.sample.run", b"[]")
    (record,) = await system.make(rollout_spec(row()))
    assert record.outcome == Completed()
    await settled_depth(system)


async def test_a_rollout_whose_task_cannot_be_read_has_failed(system: SmallSystem) -> None:
    await system.add_model(Engine(answer("done")))
    await system.add_agent()
    unreadable = json.loads(encode_spec(rollout_spec(row(), task=7))) | {"max_turns": "five"}
    await system.bus.enqueue("task.tool_loop.sample.run", json.dumps(unreadable).encode())
    (record,) = await system.records(1)
    assert (record.task_index, record.environment, record.reward) == (7, "sample", None)
    assert fault_of(record)[0] == "runtime"
    assert "max_turns" in message_of(record)
    await settled_depth(system)


async def test_no_more_rollouts_run_than_there_are_slots(system: SmallSystem) -> None:
    engine = Engine(Hang())
    await system.add_model(engine)
    worker = await system.add_agent(slots=3)
    await system.enqueue(*[rollout_spec(row(), task=task, timeout_s=100) for task in range(7)])
    await engine.calls.until(3)
    await anyio.wait_all_tasks_blocked()
    assert (len(engine.calls.items), worker.in_use, worker.load) == (3, 3, 1.0)
    assert await system.bus.depth("agent-tool_loop") == QueueDepth(waiting=4, in_flight=3)
    records = await system.records(7)
    assert {fault_of(record)[0] for record in records} == {"deadline"}
