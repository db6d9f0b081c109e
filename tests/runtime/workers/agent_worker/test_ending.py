"""Cancelling rollouts and stopping workers."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import clock
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall, Rollout
from gym_runtime.bus.interface import QueueDepth
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed
from gym_runtime.messages.stored_records import RunInfo, encode_run
from gym_testing.background import Mailbox, background, settled
from gym_testing.small_system import (
    Engine,
    Hang,
    SmallSystem,
    answer,
    function_call,
    rollout_spec,
    row,
)
from runtime.workers.agent_worker.agents import row_of, settled_depth

pytestmark = pytest.mark.anyio


def all_tasks() -> list[Any]:
    return [rollout_spec(row(), task=task, rollout=rollout) for task in (1, 10) for rollout in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("slots", [8, 1], ids=["running", "waiting"])
@pytest.mark.parametrize(
    ("subject", "cancelled"),
    [
        ("cancel.run", {(1, 0), (1, 1), (10, 0), (10, 1)}),
        ("cancel.run.1", {(1, 0), (1, 1)}),
        ("cancel.run.1.1", {(1, 1)}),
        ("cancel.run.10.0", {(10, 0)}),
        ("cancel.ru", set[tuple[int, int]]()),
    ],
)
async def test_cancelling_ends_a_run_a_group_or_a_rollout_and_nothing_else(
    system: SmallSystem, slots: int, subject: str, cancelled: set[tuple[int, int]]
) -> None:
    engine = Engine(Hang())
    await system.add_model(engine)
    await system.add_agent(slots=slots)
    await system.enqueue(*[msgspec.structs.replace(task, timeout_s=60) for task in all_tasks()])
    await engine.calls.until(min(slots, 4))
    await system.bus.publish(subject, b"")
    records = await system.records(4)
    outcomes = {(record.task_index, record.rollout_index): type(record.outcome) for record in records}
    assert outcomes == {key: Cancelled if key in cancelled else Failed for key in outcomes}
    assert len(outcomes) == 4
    assert all("reward" not in row_of(record) for record in records)
    await settled_depth(system)


async def test_cancelling_reaches_the_engine_at_once(system: SmallSystem) -> None:
    engine = Engine(Hang())
    await system.add_model(engine)
    await system.add_agent()
    await system.enqueue(rollout_spec(row()))
    await engine.calls.until(1)
    cancelled_s = clock.monotonic()
    await system.bus.publish("cancel.run", b"")
    await engine.cancelled.until(1)
    assert clock.monotonic() - cancelled_s < 0.1


@pytest.mark.parametrize("calls", [1, 2], ids=["first", "later"])
async def test_cancelling_in_the_middle_of_a_tool_closes_its_session(
    system: SmallSystem, ledger: Mailbox[str], calls: int
) -> None:
    await system.add_model(Engine(answer(*[function_call("work")] * (calls - 1), function_call("hang"))))
    await system.add_agent()
    await system.enqueue(rollout_spec(row()))
    await settled(lambda: "hang" in ledger.items)
    await system.bus.publish("cancel.run", b"")
    (record,) = await system.records(1)
    assert record.outcome == Cancelled()
    await settled(lambda: ledger.items[-1] == "close", within_s=1)


async def test_a_run_that_is_closed_while_a_turn_is_being_stored_leaves_no_session(
    system: SmallSystem, ledger: Mailbox[str]
) -> None:
    gate = anyio.Event()

    class Gated(Engine):
        async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
            found = await super().respond(call, context)
            if len(self.calls.items) == 3:
                await gate.wait()
            return found

    engine = Gated(answer(function_call("work")), answer(function_call("work")), answer("done"))
    await system.add_model(engine)
    await system.add_agent()
    await system.enqueue(rollout_spec(row()))
    await engine.calls.until(3)
    # As `Runs.close_run`, without the signal: the worker may be about to read it.
    await system.bus.append(
        "runs.run", encode_run(RunInfo(run="run", total=1, state="cancelled", closed=True))
    )
    await system.bus.forget("journal.run.>")
    gate.set()
    await settled(lambda: ledger.items == ["open", "work", "work", "close"], within_s=5)


async def test_draining_finishes_what_is_in_flight_and_takes_nothing_new(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()
    gate = anyio.Event()

    class Gated:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.task.task_index)
            await gate.wait()
            await rollout.respond()

    await system.add_model(Engine(answer("done")))
    worker = await system.add_agent({"tool_loop": Gated()}, slots=2)
    await system.enqueue(*[rollout_spec(row(), task=task) for task in range(5)])
    await begun.until(2)
    drained: list[int] = []

    async def drain() -> None:
        await worker.drain()
        drained.append(worker.in_use)

    async with background(drain):
        await anyio.sleep(5)
        assert not drained
        gate.set()
        records = await system.records(2)
        await settled(lambda: drained == [0])
    assert [record.outcome for record in records] == [Completed()] * 2
    assert {record.task_index for record in records} == set(begun.items)
    assert await system.bus.depth("agent-tool_loop") == QueueDepth(waiting=3, in_flight=0)


async def test_a_worker_that_is_stopped_gives_its_tasks_back_and_closes_its_sessions(
    system: SmallSystem, ledger: Mailbox[str]
) -> None:
    engine = Engine(answer(function_call("work")), Hang())
    await system.add_model(engine)
    await system.add_agent(name="first")
    await system.enqueue(rollout_spec(row()))
    await engine.calls.until(2)
    stopped_s = clock.monotonic()
    system.stop("first")
    await settled(lambda: ledger.items == ["open", "work", "close"], within_s=1)
    await system.add_agent(name="second")
    await engine.calls.until(3)
    assert clock.monotonic() - stopped_s < 1


async def test_agents_of_one_worker_share_its_slots(system: SmallSystem) -> None:
    begun: Mailbox[str] = Mailbox()

    class Named:
        def __init__(self, name: str) -> None:
            self._name = name

        async def run(self, rollout: Rollout) -> None:
            begun.put(self._name)
            await anyio.sleep(1)

    worker = await system.add_agent({name: Named(name) for name in ("tool_loop", "other")}, slots=4)
    tasks = [
        rollout_spec(row(), run=run, task=task, agent=agent)
        for run, agent in (("run", "tool_loop"), ("run2", "other"))
        for task in range(4)
    ]
    await system.enqueue(*tasks)
    assert await begun.until(4) == ["tool_loop"] * 4
    assert worker.load == 1.0
    async with anyio.create_task_group() as group:
        for run in ("run", "run2"):
            group.start_soon(partial(system.records, 4, run))
