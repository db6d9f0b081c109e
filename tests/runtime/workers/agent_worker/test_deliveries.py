"""Deliveries, and one deadline and one budget over all of them."""

from __future__ import annotations

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.adapters import Rollout
from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages.outcomes import Completed
from gym_runtime.messages.stored_records import RunInfo, encode_run
from gym_runtime.rollout.rollout import Agent
from gym_runtime.rpc.members import Heartbeat, announce
from gym_runtime.rpc.quarantine import MAX_CRASHES, MAX_KILLS, Before
from gym_runtime.rpc.retry_budget import RETRIES
from gym_runtime.timing import JOURNAL_FRESH_S
from gym_testing.background import Mailbox, background, settled
from gym_testing.small_system import (
    Engine,
    Hang,
    SmallSystem,
    answer,
    rollout_spec,
    row,
)
from runtime.workers.agent_worker.agents import fault_of, message_of, settled_depth

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("crash", "most"), [(True, MAX_CRASHES), (False, MAX_KILLS)])
async def test_a_task_that_kills_its_workers_ends_as_failed_and_not_in_silence(
    system: SmallSystem, crash: bool, most: int
) -> None:
    begun: Mailbox[int] = Mailbox()

    class Poisoned:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.attempt)
            await anyio.sleep_forever()

    await system.enqueue(rollout_spec(row(), max_attempts=2))
    name = ""
    for delivery in range(1, most + 1):
        before, name = name, f"agent-{delivery}"
        await system.add_agent(
            {"tool_loop": Poisoned()}, name=name, before=Before(crashed=before if crash else "")
        )
        await begun.until(delivery)
        system.kill(name)
    await system.add_agent(name="last", before=Before(crashed=name if crash else ""))
    (record,) = await system.records(1)
    assert fault_of(record)[0] == "runtime"
    assert f"{most} agent workers in a row were lost" in message_of(record)
    assert begun.items == list(range(1, most + 1))
    assert record.attempt == most + 1
    await settled_depth(system)


async def test_a_task_whose_number_fits_into_no_subject_is_dropped_at_once(
    system: SmallSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    await system.add_model(Engine(answer("done")))
    await system.enqueue(rollout_spec(row(), task=10**200), rollout_spec(row(), task=1))
    await system.add_agent()
    (record,) = await system.records(1)
    assert record.outcome == Completed()
    await settled_depth(system)
    said = "".join(capsys.readouterr())
    assert "handling failed" not in said
    assert said.count("a task is refused") == 1


async def test_an_innocent_rollout_whose_workers_are_killed_from_outside_goes_on(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()

    class Slow:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.attempt)
            if len(begun.items) <= MAX_KILLS - 1:
                await anyio.sleep_forever()
            await rollout.respond()

    await system.add_model(Engine(answer("done")))
    await system.enqueue(rollout_spec(row()))
    for delivery in range(1, MAX_KILLS):
        await system.add_agent({"tool_loop": Slow()}, name=f"agent-{delivery}")
        await begun.until(delivery)
        system.kill(f"agent-{delivery}")
    await system.add_agent({"tool_loop": Slow()}, name="last")
    (record,) = await system.records(1)
    assert record.outcome == Completed()


async def test_a_rollout_that_gets_on_goes_on_though_its_workers_are_killed(
    system: SmallSystem,
) -> None:
    class Slow:
        async def run(self, rollout: Rollout) -> None:
            for _ in range(rollout.attempt):
                await rollout.respond()
            if rollout.attempt <= 3 * MAX_KILLS:
                stored.put(rollout.attempt)
                await anyio.sleep_forever()

    stored: Mailbox[int] = Mailbox()
    name = ""
    await system.add_model(Engine(*[answer("done")] * 30))
    await system.enqueue(rollout_spec(row()))
    for delivery in range(1, 3 * MAX_KILLS + 1):
        before, name = name, f"agent-{delivery}"
        await system.add_agent({"tool_loop": Slow()}, name=name, before=Before(killed=before))
        await stored.until(delivery)
        system.kill(name)
    await system.add_agent({"tool_loop": Slow()}, name="last", before=Before(killed=name))
    (record,) = await system.records(1)
    assert record.outcome == Completed(), message_of(record)


async def test_workers_that_drain_are_not_lost(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()

    class Waiting:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.attempt)
            await anyio.sleep_forever()

    await system.add_model(Engine(answer("done")))
    await system.enqueue(rollout_spec(row()))
    for delivery in range(1, 3 * MAX_CRASHES):
        name = f"agent-{delivery}"
        await system.add_agent({"tool_loop": Waiting()}, name=name)
        await begun.until(delivery)
        system.stop(name)
    await system.add_agent(name="last")
    (record,) = await system.records(1)
    assert record.outcome == Completed()


@pytest.mark.parametrize("lasted_s", [0.0, 2 * JOURNAL_FRESH_S])
async def test_a_worker_that_missed_the_end_of_a_run_leaves_nothing_of_it(
    system: SmallSystem, lasted_s: float
) -> None:
    begun: Mailbox[int] = Mailbox()

    class Waiting:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.attempt)
            await anyio.sleep_forever()

    await system.add_agent({"tool_loop": Waiting()}, name="agent")
    await system.enqueue(rollout_spec(row()))
    await begun.until(1)
    await anyio.sleep(lasted_s)
    # No signal says so: the worker was cut off.
    closed = RunInfo(run="run", total=1, state="finished", closed=True)
    await system.bus.append("runs.run", encode_run(closed))
    await system.bus.forget("journal.run.>")
    stored: list[str] = []

    async def watch() -> None:
        async for record in system.bus.records("journal.run.>"):
            stored.append(record.subject)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        system.stop("agent")
        await settled(lambda: stored, within_s=5)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(15):
        while await system.bus.counts("journal.run.>"):
            await anyio.sleep(0.1)


@pytest.mark.parametrize("turns", [1, 2])
async def test_an_attempt_that_goes_on_after_its_run_was_closed_leaves_nothing_of_it(
    system: SmallSystem, turns: int
) -> None:
    begun: Mailbox[int] = Mailbox()
    gate = anyio.Event()

    class Gated:
        async def run(self, rollout: Rollout) -> None:
            await rollout.respond()
            begun.put(rollout.attempt)
            await gate.wait()
            for _ in range(1, turns):
                await rollout.respond()

    await system.add_model(Engine(answer("one"), answer("two")))
    await system.add_agent({"tool_loop": Gated()}, name="agent")
    # So short that its time is noted after a second.
    await system.enqueue(rollout_spec(row(), timeout_s=10.0))
    await begun.until(1)
    # No signal says so: the worker was cut off.
    closed = RunInfo(run="run", total=1, state="finished", closed=True)
    await system.bus.append("runs.run", encode_run(closed))
    await system.bus.forget("journal.run.>")
    with anyio.fail_after(5):
        while not await system.bus.counts("journal.run.>"):
            await anyio.sleep(0.1)
    gate.set()
    with anyio.fail_after(5):
        while await system.bus.counts("journal.run.>"):
            await anyio.sleep(0.1)
    # Nothing comes later.
    await anyio.sleep(5)
    assert not await system.bus.counts("journal.run.>")


async def test_a_client_that_comes_and_goes_costs_no_rollout(system: SmallSystem) -> None:
    begun: Mailbox[int] = Mailbox()
    gate = anyio.Event()

    class Gated:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout.attempt)
            await gate.wait()
            await rollout.respond()

    member = Heartbeat(worker="run", kind="client", pools=[])

    async def be_there() -> None:
        await announce(system.bus, lambda: member)

    await system.add_model(Engine(answer("done")))
    await system.add_agent({"tool_loop": Gated()})
    await system.enqueue(rollout_spec(row(), attached=True))
    for delivery in range(1, 3 * MAX_CRASHES):
        async with background(be_there):
            with anyio.fail_after(60):
                while len(begun.items) < delivery:
                    await anyio.sleep(0.1)
        await anyio.sleep(3)
    gate.set()
    async with background(be_there):
        (record,) = await system.records(1)
    assert record.outcome == Completed()


async def lost_often(system: SmallSystem, agent: Agent, each_s: float) -> None:
    """Workers with this agent, one after the other; each is killed after a while."""
    delivery = 0
    while not await system.bus.counts("rollout.run.>"):
        delivery += 1
        name = f"agent-{delivery}"
        await system.add_agent({"tool_loop": agent}, name=name)
        with anyio.move_on_after(each_s):
            await system.records(1)
        system.kill(name)


async def test_the_tries_of_a_rollout_are_counted_over_its_deliveries(system: SmallSystem) -> None:
    begun: Mailbox[Rollout] = Mailbox()

    class Failing:
        async def run(self, rollout: Rollout) -> None:
            begun.put(rollout)
            if rollout.attempt % 2:
                raise ModelUnavailable("503")
            await anyio.sleep_forever()

    await system.enqueue(rollout_spec(row(), max_attempts=3))
    with anyio.fail_after(600):
        await lost_often(system, Failing(), 5.0)
    (record,) = await system.records(1)
    assert fault_of(record)[0] == "model"
    # 1, 3 and 5 failed; 2 and 4 were lost with their workers.
    assert [rollout.attempt for rollout in begun.items] == [1, 2, 3, 4, 5]


async def test_the_retries_of_a_rollout_are_counted_over_its_deliveries(system: SmallSystem) -> None:
    left: list[int] = []

    class Spending:
        async def run(self, rollout: Rollout) -> None:
            budget = rollout._budget  # pyright: ignore[reportPrivateUsage]
            left.append(budget.left)
            budget.take(10)
            raise ModelUnavailable("503")

    await system.enqueue(rollout_spec(row(), max_attempts=2))
    await system.add_agent({"tool_loop": Spending()}, name="a")
    await settled(lambda: len(left) == 1)
    system.stop("a")
    await system.add_agent({"tool_loop": Spending()}, name="b")
    await system.records(1)
    assert left == [RETRIES, RETRIES - 10]


async def test_the_time_of_a_rollout_is_counted_over_its_attempts(system: SmallSystem) -> None:
    left: list[float] = []

    class Failing:
        async def run(self, rollout: Rollout) -> None:
            left.append(rollout.deadline_s - clock.monotonic())
            await anyio.sleep(6)
            raise ModelUnavailable("503")

    await system.add_agent({"tool_loop": Failing()})
    began_s = clock.monotonic()
    (record,) = await system.make(rollout_spec(row(), timeout_s=10, max_attempts=9))
    assert fault_of(record)[0] == "deadline"
    assert clock.monotonic() == pytest.approx(began_s + 10, abs=0.5)
    assert left == pytest.approx([10, 4], abs=0.5)


async def test_the_time_of_a_rollout_is_counted_over_its_deliveries_and_not_between_them(
    system: SmallSystem,
) -> None:
    left: Mailbox[float] = Mailbox()

    class Waiting:
        async def run(self, rollout: Rollout) -> None:
            left.put(rollout.deadline_s - clock.monotonic())
            await anyio.sleep_forever()

    await system.enqueue(rollout_spec(row(), timeout_s=32, durability="result"))
    for delivery, end in enumerate((system.stop, system.kill), 1):
        await system.add_agent({"tool_loop": Waiting()}, name=f"agent-{delivery}")
        await left.until(delivery)
        await anyio.sleep(10)
        end(f"agent-{delivery}")
        await anyio.sleep(100)
    await system.add_agent({"tool_loop": Waiting()}, name="last")
    await left.until(3)
    began_s = clock.monotonic()
    (record,) = await system.records(1)
    assert fault_of(record)[0] == "deadline"
    # What is not noted by a worker that is lost is a sixteenth of the whole, and a look each second.
    assert left.items == pytest.approx([32, 22, 12], abs=0.01) or left.items[2] < 12 + 32 / 16 + 1
    assert clock.monotonic() == pytest.approx(began_s + left.items[2], abs=0.5)


async def test_a_cancellation_reaches_every_delivery_that_a_worker_has_of_a_rollout(
    system: SmallSystem,
) -> None:
    engine = Engine(Hang())
    await system.add_model(engine)
    await system.add_agent(name="agent")
    await system.bus.append("runs.run", encode_run(RunInfo(run="run", total=1)))
    await system.enqueue(rollout_spec(row()))
    await engine.calls.until(1)
    system.broker["agent"].freeze()
    await anyio.sleep(8)
    system.broker["agent"].thaw()
    await engine.calls.until(2)
    assert not engine.cancelled.items
    await system.client.cancel("run")
    await engine.cancelled.until(2)
