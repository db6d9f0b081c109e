"""The work queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
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
from gym_runtime.bus.slots import Slots
from gym_runtime.timing import PROBE_S

if TYPE_CHECKING:
    from runtime.bus.conftest import Fragile, System
from runtime.bus.contract.traffic import ACK_WAIT_S, EVERY_BYTE, SOON_S, Mailbox, Pool, background, pulling

pytestmark = pytest.mark.anyio


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds that only the broker knows, so that nobody can tell."""
    with anyio.fail_after(SOON_S):
        while not await holds():
            await anyio.sleep(0.005)


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


async def test_slots_are_used_and_never_exceeded(bus: Bus, other: Bus) -> None:
    running = most = 0
    full = anyio.Event()
    done: Mailbox[bytes] = Mailbox()

    async def handle(delivery: Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 7:
            full.set()
        await full.wait()
        await anyio.sleep(0.001 * (int(delivery.payload) % 4))
        running -= 1
        await delivery.ack()
        done.put(delivery.payload)

    async with pulling(other, handle, slots=7):
        for number in range(200):
            await bus.enqueue("task.a.b", b"%d" % number)
        await done.until(200)
    assert most == 7
    assert Counter(done.items) == {b"%d" % number: 1 for number in range(200)}


class Floor:
    """Counts the tasks in progress of each queue; each ends when it is let go."""

    def __init__(self) -> None:
        self.at_work: Counter[str] = Counter()
        self.most = 0
        self.redelivered = 0
        self._changed = anyio.Event()
        self.ended: Counter[str] = Counter()
        self._held: dict[str, list[anyio.Event]] = {}

    async def handle(self, delivery: Delivery) -> None:
        queue = delivery.subject.split(".")[1]
        self.redelivered += delivery.deliveries > 1
        let_go = anyio.Event()
        self._held.setdefault(queue, []).append(let_go)
        self._count(queue, 1)
        await let_go.wait()
        self.ended[queue] += 1
        self._count(queue, -1)
        await delivery.ack()

    def _count(self, queue: str, change: int) -> None:
        self.at_work[queue] += change
        self.most = max(self.most, self.at_work.total())
        self._changed.set()
        self._changed = anyio.Event()

    async def let_go(self, queue: str) -> None:
        """End one task, and return when it has ended."""
        ended = self.ended[queue] + 1
        self._held[queue].pop(0).set()
        with anyio.fail_after(15):
            while self.ended[queue] < ended:
                await self._changed.wait()

    async def until(self, **counts: int) -> None:
        with anyio.fail_after(15):
            while any(self.at_work[queue] != count for queue, count in counts.items()):
                await self._changed.wait()


async def test_pulls_that_share_slots_give_all_of_them_to_the_queue_that_has_tasks(
    bus: Bus, other: Bus
) -> None:
    floor, slots = Floor(), Slots(12)
    async with AsyncExitStack() as stack:
        for name in "abcd":
            await stack.enter_async_context(
                pulling(
                    other,
                    floor.handle,
                    pattern=f"task.{name}.>",
                    consumer=name,
                    slots=slots,
                    ack_wait_s=2.0,
                )
            )
        for number in range(40):
            await bus.enqueue("task.a.x", b"%d" % number)
        await floor.until(a=12)
        # Another queue's turn comes when a slot is free, until both have the same.
        for number in range(6):
            await bus.enqueue("task.b.x", b"%d" % number)
        await anyio.sleep(1.2 * PROBE_S)
        for gone in range(6):
            await floor.let_go("a")
            await floor.until(a=11 - gone, b=1 + gone)
        # When one queue is empty, the other one has all slots again, once its last pulls have ended.
        for _ in range(6):
            await floor.let_go("b")
        await floor.until(a=12, b=0)
        await bus.enqueue("task.c.x", b"")
        await anyio.sleep(1.2 * PROBE_S)
        await floor.let_go("a")
        await floor.until(c=1)
        assert (floor.most, floor.redelivered) == (12, 0)


async def test_fewer_slots_than_pulls_serve_them_all(bus: Bus, other: Bus) -> None:
    floor, slots = Floor(), Slots(1)
    async with AsyncExitStack() as stack:
        for name in "abc":
            await stack.enter_async_context(
                pulling(other, floor.handle, pattern=f"task.{name}.>", consumer=name, slots=slots)
            )
        for name in "cab":
            await bus.enqueue(f"task.{name}.x", b"")
            await floor.until(**{name: 1})
            await floor.let_go(name)
            await floor.until(**{name: 0})
    assert (floor.most, floor.redelivered) == (1, 0)


async def test_an_acked_task_is_removed(bus: Bus, other: Bus) -> None:
    await bus.enqueue("task.a.b", b"")
    acked = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        await delivery.ack()
        acked.set()

    async with pulling(other, handle):
        with anyio.fail_after(SOON_S):
            await acked.wait()

        async def gone() -> bool:
            nothing = await bus.depth("workers") == QueueDepth(waiting=0, in_flight=0)
            return nothing and await bus.counts("task.>") == {}

        await eventually(gone)


async def test_a_released_task_is_delivered_again_and_counted(bus: Bus, other: Bus) -> None:
    await bus.enqueue("task.a.b", b"x")
    counts: Mailbox[int] = Mailbox()

    async def handle(delivery: Delivery) -> None:
        counts.put(delivery.deliveries)
        if delivery.deliveries < 4:
            await delivery.release()
        else:
            await delivery.ack()

    async with pulling(other, handle):
        assert await counts.until(4) == [1, 2, 3, 4]


async def test_a_task_released_with_a_delay_is_not_delivered_before(bus: Bus, other: Bus) -> None:
    await bus.enqueue("task.a.b", b"x")
    times_s: Mailbox[float] = Mailbox()

    async def handle(delivery: Delivery) -> None:
        times_s.put(anyio.current_time())
        if delivery.deliveries == 1:
            await delivery.release(0.4)
        else:
            await delivery.ack()

    async with pulling(other, handle):
        first_s, second_s = await times_s.until(2)
    assert second_s - first_s >= 0.39


@pytest.mark.parametrize("raises", [True, False], ids=["raises", "settles nothing"])
async def test_a_handler_that_settles_nothing_gives_the_task_back(
    bus: Bus, other: Bus, *, raises: bool
) -> None:
    await bus.enqueue("task.a.b", b"x")
    counts: Mailbox[int] = Mailbox()

    async def handle(delivery: Delivery) -> None:
        counts.put(delivery.deliveries)
        if delivery.deliveries == 2:
            await delivery.ack()
        elif raises:
            raise ValueError("a bug of the handler")

    async with pulling(other, handle, ack_wait_s=3600):
        assert await counts.until(2) == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["freeze", "cut"])
async def test_the_task_of_a_lost_worker_is_delivered_again_after_the_ack_wait(
    bus: Bus, fragile: Fragile, fault: str
) -> None:
    await bus.enqueue("task.a.b", b"x")
    lost, pool = Pool(), Pool()
    async with pulling(fragile.bus, lost.hold, slots=1):
        await lost.first(1)
        getattr(fragile, fault)()
        began_s = anyio.current_time()
        async with pulling(bus, pool.ack):
            (delivery,) = await pool.first(1)
        assert (delivery.payload, delivery.deliveries) == (b"x", 2)
        # It was kept alive for the last time at most a third of the wait before.
        assert anyio.current_time() - began_s >= ACK_WAIT_S * 0.6
        fragile.thaw()
        fragile.mend()


@pytest.mark.slow
async def test_a_lost_ack_means_a_redelivery(bus: Bus, fragile: Fragile) -> None:
    await bus.enqueue("task.a.b", b"x")
    acked = anyio.Event()
    pool = Pool()

    async def handle(delivery: Delivery) -> None:
        fragile.freeze()
        await delivery.ack()
        acked.set()

    async with pulling(fragile.bus, handle, slots=1):
        with anyio.fail_after(SOON_S):
            await acked.wait()
        async with pulling(bus, pool.ack):
            (delivery,) = await pool.first(1)
        assert (delivery.payload, delivery.deliveries) == (b"x", 2)
        fragile.thaw()


@pytest.mark.slow
async def test_an_abandoned_delivery_is_neither_given_back_nor_kept_alive(bus: Bus, other: Bus) -> None:
    await bus.enqueue("task.a.b", b"x")
    times_s: Mailbox[float] = Mailbox()

    async def handle(delivery: Delivery) -> None:
        times_s.put(anyio.current_time())
        if delivery.deliveries == 1:
            delivery.abandon()
            await anyio.sleep(2 * ACK_WAIT_S)
        else:
            await delivery.ack()

    async with pulling(other, handle):
        first_s, second_s = await times_s.until(2)
    assert 0.9 * ACK_WAIT_S <= second_s - first_s < 2 * ACK_WAIT_S


@pytest.mark.slow
async def test_a_delivery_is_kept_alive_while_it_is_handled(bus: Bus, other: Bus) -> None:
    await bus.enqueue("task.a.b", b"x")
    pool = Pool()
    async with pulling(other, pool.hold), pulling(bus, pool.hold):
        await pool.first(1)
        await anyio.sleep(2.5 * ACK_WAIT_S)
        assert len(pool.deliveries.items) == 1


async def test_cancelling_gives_back_what_is_unfinished(bus: Bus, other: Bus) -> None:
    for number in range(3):
        await bus.enqueue("task.a.b", b"%d" % number)
    first, second = Pool(), Pool()
    async with pulling(other, first.hold, ack_wait_s=3600):
        await first.first(3)
    async with pulling(bus, second.ack, ack_wait_s=3600):
        again = await second.first(3)
    assert sorted((delivery.payload, delivery.deliveries) for delivery in again) == [
        (b"0", 2),
        (b"1", 2),
        (b"2", 2),
    ]


async def test_stop_takes_nothing_new_and_returns_when_all_is_finished(bus: Bus, other: Bus) -> None:
    for number in range(5):
        await bus.enqueue("task.a.b", b"%d" % number)
    pool, stop, returned = Pool(), anyio.Event(), anyio.Event()

    async def pull() -> None:
        await other.pull("task.>", consumer="workers", slots=2, handle=pool.hold, stop=stop)
        returned.set()

    async with background(pull):
        await pool.first(2)
        stop.set()
        await anyio.sleep(0.05)
        assert not returned.is_set()
        pool.go()
        with anyio.fail_after(SOON_S):
            await returned.wait()
    assert len(pool.deliveries.items) == 2
    later = Pool()
    async with pulling(bus, later.ack):
        rest = await later.first(3)
    assert [(delivery.payload, delivery.deliveries) for delivery in rest] == [
        (b"2", 1),
        (b"3", 1),
        (b"4", 1),
    ]


async def test_stop_returns_at_once_when_nothing_is_in_flight(bus: Bus, other: Bus) -> None:
    stop = anyio.Event()
    pool = Pool()
    with anyio.fail_after(SOON_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                partial(other.pull, "task.>", consumer="workers", slots=2, handle=pool.ack, stop=stop)
            )
            await bus.enqueue("task.a.b", b"")
            await pool.first(1)
            stop.set()


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
