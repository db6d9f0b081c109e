"""The work queue: tasks are stored, delivered, counted and forgotten."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest
from gym_runtime.bus.interface import (
    Bus,
    Delivery,
    QueueDepth,
)

if TYPE_CHECKING:
    from runtime.bus.conftest import System
from runtime.bus.contract.queue_traffic import eventually
from runtime.bus.contract.traffic import EVERY_BYTE, SOON_S, Mailbox, Pool, pulling

pytestmark = pytest.mark.anyio


async def test_a_task_that_was_stored_is_delivered_to_who_pulls_later(bus: Bus, other: Bus) -> None:
    await bus.enqueue("task.loop.mcqa.run1", EVERY_BYTE, headers={"traceparent": "00-ab"})
    await bus.enqueue("task.loop.math.run1", b"")
    pool = Pool()
    async with pulling(other, pool.ack):
        first, second = await pool.first(2)
    assert (first.subject, second.subject) == ("task.loop.mcqa.run1", "task.loop.math.run1")
    assert (first.payload, second.payload) == (EVERY_BYTE, b"")
    assert first.headers == {"traceparent": "00-ab"}
    assert not second.headers
    assert first.deliveries == second.deliveries == 1


async def test_five_hundred_tasks_enqueued_at_once_are_all_stored(bus: Bus) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(500):
            tasks.start_soon(bus.enqueue, f"task.a.{number % 5}", b"%d" % number)
    assert await bus.counts("task.>") == {f"task.a.{number}": 100 for number in range(5)}


async def test_a_task_that_is_put_there_once_is_there_once_until_it_is_done(bus: Bus, other: Bus) -> None:
    async with anyio.create_task_group() as tasks:
        for connection in (bus, other) * 5:
            tasks.start_soon(partial(connection.enqueue, "task.a.b.run.7", b"first", once=True))
    assert await bus.counts("task.>") == {"task.a.b.run.7": 1}
    done: Mailbox[bytes] = Mailbox()
    held, go_on = anyio.Event(), anyio.Event()

    async def handle(delivery: Delivery) -> None:
        held.set()
        await go_on.wait()
        await delivery.ack()
        done.put(delivery.payload)

    async with pulling(other, handle):
        await held.wait()
        await bus.enqueue("task.a.b.run.7", b"while it is worked on", once=True)
        await bus.enqueue("task.a.b.run.8", b"another", once=True)
        go_on.set()
        await done.until(2)
        with anyio.fail_after(SOON_S):
            while await bus.counts("task.>"):
                await anyio.sleep(0.01)
        await bus.enqueue("task.a.b.run.7", b"again", once=True)
        assert sorted(await done.until(3)) == [b"again", b"another", b"first"]


async def test_consumers_of_disjoint_patterns_get_their_own_tasks(bus: Bus, other: Bus) -> None:
    loop, step = Pool(), Pool()
    async with (
        pulling(bus, loop.ack, pattern="task.loop.>", consumer="agent-loop"),
        pulling(other, step.ack, pattern="task.step.>", consumer="agent-step"),
    ):
        for number in range(20):
            await bus.enqueue(f"task.{'loop' if number % 2 else 'step'}.mcqa", b"%d" % number)
        ours, theirs = await loop.first(10), await step.first(10)
    assert sorted(int(delivery.payload) for delivery in ours) == list(range(1, 20, 2))
    assert sorted(int(delivery.payload) for delivery in theirs) == list(range(0, 20, 2))


async def test_workers_of_one_consumer_share_its_tasks(bus: Bus, system: System) -> None:
    for number in range(6):
        await bus.enqueue("task.a.b", b"%d" % number)
    pools = [(await system.connect(), Pool()) for _ in range(3)]
    async with AsyncExitStack() as stack:
        for worker, pool in pools:
            await stack.enter_async_context(pulling(worker, pool.hold, slots=2))
        held = [await pool.first(2) for _, pool in pools]
        assert await bus.depth("workers") == QueueDepth(waiting=0, in_flight=6)
    assert Counter(delivery.payload for two in held for delivery in two) == {
        b"%d" % number: 1 for number in range(6)
    }


async def test_a_queue_that_was_opened_shows_what_waits_before_any_worker(bus: Bus, other: Bus) -> None:
    for _ in range(2):
        await bus.open_queue("task.>", consumer="workers")
    await bus.enqueue("task.a.b", b"1")
    assert await other.depth("workers") == QueueDepth(waiting=1, in_flight=0)
    pool = Pool()
    async with pulling(other, pool.ack):
        await pool.first(1)


async def test_a_queue_that_was_closed_can_be_opened_again_and_its_tasks_are_there(
    bus: Bus, other: Bus
) -> None:
    await bus.close_queue("task.a.>", consumer="workers")  # the consumer does not exist
    await bus.open_queue("task.a.>", consumer="workers", most=0)
    await bus.enqueue("task.a.1", b"")
    await bus.close_queue("task.a.>", consumer="workers")
    done: Mailbox[str] = Mailbox()

    async def handle(delivery: Delivery) -> None:
        await delivery.ack()
        done.put(delivery.subject)

    async with pulling(other, handle, pattern="task.a.>", consumer="workers", most=0):
        await done.until(1)


async def test_depth(bus: Bus, other: Bus) -> None:
    assert await bus.depth("workers") == QueueDepth(waiting=0, in_flight=0)
    for number in range(5):
        await bus.enqueue("task.a.b", b"%d" % number)
    await bus.enqueue("task.x.b", b"")
    pool = Pool()
    async with pulling(other, pool.hold, pattern="task.a.>", slots=2):
        await pool.first(2)
        assert await bus.depth("workers") == QueueDepth(waiting=3, in_flight=2)
        assert await bus.depth("nobody") == QueueDepth(waiting=0, in_flight=0)
        pool.go()
        await pool.first(5)

        async def done() -> bool:
            return await bus.depth("workers") == QueueDepth(waiting=0, in_flight=0)

        await eventually(done)


async def test_forgetting_the_tasks_of_one_run(bus: Bus, other: Bus) -> None:
    for number in range(12):
        await bus.enqueue(f"task.loop.mcqa.run{number % 2}", b"%d" % number)
    pool = Pool()
    async with pulling(other, pool.hold, slots=2):
        await pool.first(2)
        assert await bus.forget("task.*.*.run0") == 6
        assert await bus.counts("task.>") == {"task.loop.mcqa.run1": 6}
        assert await bus.forget("task.*.*.run0") == 0
        pool.go()
        delivered = await pool.first(7)
    gone = [delivery for delivery in delivered if delivery.subject.endswith("run0")]
    assert len(gone) == 1
