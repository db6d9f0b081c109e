"""Every promise of `gym_runtime.bus.interface`, on every bus.

The in-memory bus runs on virtual time, NATS on a real broker. Tests wait for events; where a promise is
that something does *not* happen, the time within which it would have happened passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.bus.interface import (
    BLOB_BYTES,
    INLINE_BYTES,
    Bus,
    Delivery,
    Incoming,
    QueueDepth,
    Record,
)
from gym_runtime.bus.slots import PROBE_S, Slots
from gym_runtime.errors import ConnectionLost, DeadlineExceeded, NoWorker, PayloadTooLarge
from gym_runtime.testing.virtual_clock import BACKEND

if TYPE_CHECKING:
    from runtime.bus.conftest import Fragile, System

pytestmark = pytest.mark.anyio

T = TypeVar("T")

SOON_S = 10.0
"""How long anything may take that is promised to happen; reached only by a failing test."""
ACK_WAIT_S = 1.0
EVERY_BYTE = bytes(range(256)) + b"\r\n\r\nMSG x 1 5\r\n"


@pytest.fixture
def anyio_backend(kind: str) -> tuple[str, dict[str, Any]]:
    return BACKEND if kind == "memory" else ("asyncio", {"use_uvloop": True})


@pytest.fixture
async def bus(system: System) -> Bus:
    return await system.connect()


@pytest.fixture
async def other(system: System) -> Bus:
    return await system.connect()


@pytest.fixture
async def fragile(system: System) -> Fragile:
    return await system.connect_fragile()


# -- what the tests are written with --------------------------------------------------------------------


class Mailbox(Generic[T]):
    """Takes things and lets one wait for them."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._arrived = anyio.Event()

    def put(self, item: T) -> None:
        self.items.append(item)
        self._arrived.set()

    async def until(self, count: int) -> list[T]:
        """All items, once there are at least ``count``."""
        with anyio.fail_after(SOON_S):
            while len(self.items) < count:
                self._arrived = anyio.Event()
                await self._arrived.wait()
        return self.items


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds that only the broker knows, so that nobody can tell."""
    with anyio.fail_after(SOON_S):
        while not await holds():
            await anyio.sleep(0.005)


@asynccontextmanager
async def background(*works: Callable[[], Awaitable[Any]]) -> AsyncGenerator[None]:
    """Run something until the context ends."""
    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(work)
        yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def answering(
    bus: Bus, subject: str, answer: Callable[[Incoming], bytes], *, queue: str = ""
) -> AsyncGenerator[None]:
    """Serve a subject with a function."""
    async with anyio.create_task_group() as tasks:

        def receive(incoming: Incoming) -> None:
            tasks.start_soon(bus.publish, incoming.reply, answer(incoming))

        async with bus.serve(subject, receive, queue=queue):
            yield


def silent(incoming: Incoming) -> None:
    """A subscriber that does nothing."""


async def ask(
    bus: Bus, subject: str, payload: bytes = b"", *, within_s: float = SOON_S, **options: Any
) -> bytes:
    return await bus.request(subject, payload, deadline_s=clock.now() + within_s, **options)


async def take(bus: Bus, pattern: str, count: int, *, after: int = 0) -> list[Record]:
    """The first ``count`` records of a pattern."""
    found: list[Record] = []
    with anyio.fail_after(SOON_S):
        async with aclosing(bus.records(pattern, after=after)) as records:
            async for record in records:
                found.append(record)
                if len(found) == count:
                    break
    return found


class Pool:
    """Pullers whose handlers note each delivery and wait until they are told how to end it."""

    def __init__(self) -> None:
        self.deliveries: Mailbox[Delivery] = Mailbox()
        self.running = 0
        self.most = 0
        self._go = anyio.Event()

    def go(self) -> None:
        """Let all handlers end."""
        self._go.set()

    async def hold(self, delivery: Delivery) -> None:
        """A handler: waits for `go`, then acks."""
        self.running += 1
        self.most = max(self.most, self.running)
        self.deliveries.put(delivery)
        try:
            await self._go.wait()
            await delivery.ack()
        finally:
            self.running -= 1

    async def ack(self, delivery: Delivery) -> None:
        """A handler: acks at once."""
        self.deliveries.put(delivery)
        await delivery.ack()

    async def first(self, count: int) -> list[Delivery]:
        return await self.deliveries.until(count)


def pulling(
    bus: Bus,
    handle: Callable[[Delivery], Awaitable[None]],
    *,
    pattern: str = "task.>",
    consumer: str = "workers",
    slots: int | Slots = 4,
    ack_wait_s: float = ACK_WAIT_S,
) -> Any:
    """Pull until the context ends."""
    return background(
        partial(bus.pull, pattern, consumer=consumer, slots=slots, handle=handle, ack_wait_s=ack_wait_s)
    )


# -- requests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"", b"x", EVERY_BYTE], ids=["empty", "one", "all"])
async def test_request_returns_what_was_answered(bus: Bus, other: Bus, payload: bytes) -> None:
    async with answering(other, "service.echo", lambda incoming: incoming.payload[::-1]):
        assert await ask(bus, "service.echo", payload) == payload[::-1]


async def test_a_request_arrives_with_its_subject_headers_and_somewhere_to_answer(
    bus: Bus, other: Bus
) -> None:
    seen: Mailbox[Incoming] = Mailbox()

    def answer(incoming: Incoming) -> bytes:
        seen.put(incoming)
        return b""

    async with answering(other, "service.*", answer):
        await ask(bus, "service.one", headers={"traceparent": "00-ab-cd-01", "Gym-Key": "a: b"})
        await ask(bus, "service.two")
    first, second = await seen.until(2)
    assert (first.subject, second.subject) == ("service.one", "service.two")
    assert first.headers == {"traceparent": "00-ab-cd-01", "Gym-Key": "a: b"}
    assert not second.headers
    assert first.reply
    assert second.reply
    assert first.reply != second.reply


async def test_a_thousand_requests_in_flight_each_get_their_own_answer(bus: Bus, other: Bus) -> None:
    waiting: Mailbox[Incoming] = Mailbox()
    answers: dict[int, bytes] = {}

    async def one(number: int) -> None:
        answers[number] = await ask(bus, "service.slow", b"%d" % number)

    async with other.serve("service.slow", waiting.put), anyio.create_task_group() as tasks:
        for number in range(1000):
            tasks.start_soon(one, number)
        for incoming in reversed(await waiting.until(1000)):
            await other.publish(incoming.reply, b"re " + incoming.payload)
    assert answers == {number: b"re %d" % number for number in range(1000)}


async def test_no_worker_at_once_when_nobody_serves(bus: Bus, other: Bus) -> None:
    with anyio.fail_after(SOON_S):
        with pytest.raises(NoWorker):
            await ask(bus, "service.none", within_s=3600)
        async with other.serve("service.none", silent):
            pass
        with pytest.raises(NoWorker):
            await ask(bus, "service.none", within_s=3600)


async def test_no_worker_at_once_when_the_server_is_disconnected(bus: Bus, fragile: Fragile) -> None:
    async with answering(fragile.bus, "service.x", lambda incoming: b""):
        await ask(bus, "service.x")
        fragile.cut()
        with anyio.fail_after(SOON_S):
            while True:
                try:
                    await ask(bus, "service.x", within_s=0.1)
                except NoWorker:
                    break
                except DeadlineExceeded:
                    # A socket's end takes a moment to reach the broker.
                    continue
        fragile.mend()
        with anyio.fail_after(SOON_S):
            while True:
                try:
                    await ask(bus, "service.x", within_s=1)
                    break
                except NoWorker:
                    await anyio.sleep(0.01)


async def test_deadline(bus: Bus, other: Bus) -> None:
    async with other.serve("service.mute", silent):
        deadline_s = clock.now() + 0.2
        with anyio.fail_after(SOON_S), pytest.raises(DeadlineExceeded):
            await bus.request("service.mute", b"", deadline_s=deadline_s)
        # The loop's clock and the epoch's differ by less than this over so short a time.
        assert clock.now() >= deadline_s - 0.005


async def test_a_deadline_that_has_passed(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("service.mute", seen.put):
        with pytest.raises(DeadlineExceeded):
            await bus.request("service.mute", b"", deadline_s=clock.now() - 1)


async def test_a_cancelled_request_ends_at_once_and_its_late_answer_is_dropped(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("service.late", seen.put):
        with anyio.fail_after(SOON_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(ask, bus, "service.late", b"1", within_s=3600))
                await seen.until(1)
                tasks.cancel_scope.cancel()
            async with anyio.create_task_group() as tasks:

                async def again() -> None:
                    assert await ask(bus, "service.late", b"2") == b"for 2"

                tasks.start_soon(again)
                first, second = await seen.until(2)
                await other.publish(first.reply, b"for 1")
                await other.publish(second.reply, b"for 2")


async def test_connection_lost_at_once_when_it_breaks_while_waiting(bus: Bus, fragile: Fragile) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with bus.serve("service.mute", seen.put), anyio.create_task_group() as tasks:

        async def lose() -> None:
            with pytest.raises(ConnectionLost):
                await ask(fragile.bus, "service.mute", within_s=3600)

        with anyio.fail_after(SOON_S):
            for _ in range(3):
                tasks.start_soon(lose)
            await seen.until(3)
            fragile.cut()


async def test_requests_work_again_after_a_reconnection(bus: Bus, fragile: Fragile) -> None:
    async with answering(bus, "service.echo", lambda incoming: incoming.payload):
        assert await ask(fragile.bus, "service.echo", b"1") == b"1"
        fragile.cut()
        fragile.mend()
        with anyio.fail_after(SOON_S):
            while True:
                try:
                    assert await ask(fragile.bus, "service.echo", b"2") == b"2"
                    break
                except ConnectionLost:
                    # It was asked before the break was noticed.
                    continue


# -- serving and signals --------------------------------------------------------------------------------


async def test_messages_are_received_in_order_of_arrival(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("signal.*", seen.put):
        for number in range(2000):
            await bus.publish("signal.a" if number % 2 else "signal.b", b"%d" % number)
        received = await seen.until(2000)
    assert [int(incoming.payload) for incoming in received] == list(range(2000))


async def test_a_signal_carries_headers_and_no_reply(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("signal.a", seen.put):
        await bus.publish("signal.a", EVERY_BYTE, headers={"k": "v"})
        (incoming,) = await seen.until(1)
    assert incoming == Incoming("signal.a", EVERY_BYTE, "", {"k": "v"})


async def test_a_signal_to_nobody_is_no_error(bus: Bus) -> None:
    await bus.publish("signal.nobody", b"")


async def test_each_message_goes_to_one_of_a_queue_and_to_everybody_else(bus: Bus, system: System) -> None:
    boxes: dict[str, Mailbox[Incoming]] = {}
    members: dict[str, Bus] = {}
    for name in ("a1", "a2", "b1", "plain1", "plain2"):
        boxes[name], members[name] = Mailbox(), await system.connect()
    shared: Mailbox[bytes] = Mailbox()

    def share(name: str, incoming: Incoming) -> None:
        boxes[name].put(incoming)
        shared.put(incoming.payload)

    async with AsyncExitStack() as stack:
        for name, member in members.items():
            queue = "" if name.startswith("plain") else name[0]
            put = partial(share, name) if queue == "a" else boxes[name].put
            await stack.enter_async_context(member.serve("signal.x", put, queue=queue))
        for number in range(200):
            await bus.publish("signal.x", b"%d" % number)
        for name in ("b1", "plain1", "plain2"):
            await boxes[name].until(200)
        await shared.until(200)
    everything = [b"%d" % number for number in range(200)]
    for name in ("b1", "plain1", "plain2"):
        assert [incoming.payload for incoming in boxes[name].items] == everything
    assert sorted(shared.items) == sorted(everything)
    assert boxes["a1"].items
    assert boxes["a2"].items


async def test_patterns(bus: Bus, other: Bus) -> None:
    patterns = ["a", "a.b", "a.*", "a.*.c", "a.>", "*.b", "*.*.*", "b.>"]
    expected = {
        "a": {"a"},
        "a.b": {"a.b", "a.*", "a.>", "*.b"},
        "a.x": {"a.*", "a.>"},
        "a.b.c": {"a.*.c", "a.>", "*.*.*"},
        "a.b.d": {"a.>", "*.*.*"},
        "a.b.c.d": {"a.>"},
        "ab": set(),
        "b": set(),
        "b.b": {"*.b", "b.>"},
    }
    hits: dict[str, set[str]] = {subject: set() for subject in expected}
    done = anyio.Event()

    def note(pattern: str, incoming: Incoming) -> None:
        hits[incoming.subject].add(pattern)

    async with AsyncExitStack() as stack:
        for pattern in patterns:
            await stack.enter_async_context(other.serve(pattern, partial(note, pattern)))
        await stack.enter_async_context(other.serve("end", lambda incoming: done.set()))
        for subject in expected:
            await bus.publish(subject, b"")
        await bus.publish("end", b"")
        with anyio.fail_after(SOON_S):
            await done.wait()
    assert hits == expected


async def test_nothing_is_received_after_the_context(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("signal.x", seen.put):
        await bus.publish("signal.x", b"1")
        await seen.until(1)
    last: Mailbox[Incoming] = Mailbox()
    async with other.serve("signal.y", last.put):
        await bus.publish("signal.x", b"2")
        await bus.publish("signal.y", b"3")
        await last.until(1)
    assert len(seen.items) == 1


async def test_serving_goes_on_after_a_reconnection(bus: Bus, fragile: Fragile) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with fragile.bus.serve("signal.x", seen.put):
        fragile.cut()
        fragile.mend()
        with anyio.fail_after(SOON_S):
            while not seen.items:
                await bus.publish("signal.x", b"")
                await anyio.sleep(0.01)


@pytest.mark.slow
async def test_publish_waits_while_the_buffer_is_full_and_can_be_cancelled_there(
    bus: Bus, fragile: Fragile
) -> None:
    chunk = bytes(INLINE_BYTES)
    fragile.freeze()
    with anyio.move_on_after(1) as scope:
        for _ in range(4096):
            await fragile.bus.publish("signal.x", chunk)
    assert scope.cancelled_caught, "a gigabyte was taken without waiting"
    async with bus.serve("signal.end", (ends := Mailbox[Incoming]()).put), anyio.create_task_group() as tasks:
        tasks.start_soon(fragile.bus.publish, "signal.end", b"")
        fragile.thaw()
        await ends.until(1)


# -- the work queue -------------------------------------------------------------------------------------


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


# -- commit once ----------------------------------------------------------------------------------------


async def test_only_the_first_commit_is_stored(bus: Bus, other: Bus, system: System) -> None:
    assert await bus.commit("rollout.run1.0.0", b"first") is True
    assert await bus.commit("rollout.run1.0.0", b"second") is False
    assert await other.commit("rollout.run1.0.0", b"first") is False
    assert await other.commit("rollout.run1.0.1", b"other") is True
    await system.wait_days(3)
    assert await other.commit("rollout.run1.0.0", b"late") is False
    stored = await bus.latest("rollout.run1.>")
    assert [(record.subject, record.payload) for record in stored] == [
        ("rollout.run1.0.0", b"first"),
        ("rollout.run1.0.1", b"other"),
    ]


async def test_one_of_a_hundred_concurrent_commits_is_stored(system: System) -> None:
    buses = [await system.connect() for _ in range(3)]
    results: dict[int, bool] = {}

    async def one(number: int) -> None:
        results[number] = await buses[number % 3].commit("rollout.run.0.0", b"%d" % number)

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(one, number)
    (winner,) = [number for number, stored in results.items() if stored]
    assert len(results) == 100
    (record,) = await buses[0].latest("rollout.run.0.0")
    assert int(record.payload) == winner


async def test_what_is_stored_during_a_disconnection_is_stored_once(bus: Bus, fragile: Fragile) -> None:
    committed: list[bool] = []

    async def commit() -> None:
        committed.append(await fragile.bus.commit("rollout.run.0.0", b"x"))

    fragile.cut()
    with anyio.fail_after(SOON_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit)
            tasks.start_soon(fragile.bus.enqueue, "task.a.b", b"x")
            tasks.start_soon(fragile.bus.append, "journal.run.0.0", b"x")
            await anyio.sleep(0.05)
            fragile.mend()
    assert committed == [True]
    assert await bus.commit("rollout.run.0.0", b"x") is False
    assert await bus.counts("task.>") == {"task.a.b": 1}
    assert await bus.counts("journal.>") == {"journal.run.0.0": 1}


async def test_append_only_after_the_record_that_is_expected(bus: Bus, other: Bus) -> None:
    assert await bus.append("journal.r.0.0", b"no", expect=7) is None
    first = await bus.append("journal.r.0.0", b"1", expect=0)
    assert first is not None
    assert await other.append("journal.r.0.0", b"no", expect=0) is None
    assert await bus.append("journal.r.0.1", b"another subject", expect=0) is not None
    second = await other.append("journal.r.0.0", b"2", expect=first)
    assert await bus.append("journal.r.0.0", b"no", expect=first) is None
    third = await bus.append("journal.r.0.0", b"3")
    assert [record.payload for record in await take(bus, "journal.r.0.0", 3)] == [b"1", b"2", b"3"]
    assert [record.sequence for record in await take(bus, "journal.r.0.0", 3)] == [first, second, third]
    await bus.forget("journal.r.0.0")
    assert await bus.append("journal.r.0.0", b"anew", expect=0) is not None


async def test_one_of_many_concurrent_appends_after_the_same_record_is_stored(bus: Bus, other: Bus) -> None:
    results: list[int | None] = []

    async def one(number: int) -> None:
        writer = bus if number % 2 else other
        results.append(await writer.append("journal.r.0.0", b"%d" % number, expect=0))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(one, number)
    stored = [sequence for sequence in results if sequence is not None]
    assert len(stored) == 1
    assert [record.sequence for record in await bus.latest("journal.r.0.0")] == stored


# -- ordered consumption --------------------------------------------------------------------------------


async def test_records_yields_the_past_then_what_comes(bus: Bus, other: Bus) -> None:
    for number in range(3):
        await bus.append("journal.r.0.0", b"%d" % number)
    seen: Mailbox[Record] = Mailbox()

    async def follow() -> None:
        async with aclosing(other.records("journal.r.0.0")) as records:
            async for record in records:
                seen.put(record)

    async with background(follow):
        await seen.until(3)
        sequences = [await bus.append("journal.r.0.0", b"%d" % number) for number in range(3, 6)]
        found = await seen.until(6)
    assert [int(record.payload) for record in found] == list(range(6))
    assert [record.sequence for record in found[3:]] == sequences
    assert sorted({record.sequence for record in found}) == [record.sequence for record in found]


async def test_records_of_a_pattern_after_a_sequence(bus: Bus) -> None:
    sequences: list[int] = []
    for number in range(10):
        await bus.append("journal.other.0.0", b"no")
        sequences.append(await bus.append(f"journal.run.{number % 3}.0", b"%d" % number))
    everything = await take(bus, "journal.run.>", 10)
    assert [int(record.payload) for record in everything] == list(range(10))
    assert [record.subject for record in everything[:3]] == [
        "journal.run.0.0",
        "journal.run.1.0",
        "journal.run.2.0",
    ]
    rest = await take(bus, "journal.run.>", 4, after=sequences[5])
    assert [int(record.payload) for record in rest] == [6, 7, 8, 9]
    one = await take(bus, "journal.run.1.*", 3)
    assert [int(record.payload) for record in one] == [1, 4, 7]


async def test_five_thousand_records_reach_a_slow_reader_once_and_in_order(bus: Bus, other: Bus) -> None:
    count = 5000
    stored: dict[int, int] = {}

    async def store(numbers: range) -> None:
        for number in numbers:
            stored[await bus.append("journal.r.0.0", b"%d" % number)] = number

    found: list[Record] = []
    async with anyio.create_task_group() as tasks:
        for start in range(50):
            tasks.start_soon(store, range(start, count, 50))
        async with aclosing(other.records("journal.r.>")) as records:
            async for record in records:
                found.append(record)
                if len(found) == count:
                    break
                if len(found) % 100 == 0:
                    await anyio.sleep(0.005)
    assert [record.sequence for record in found] == sorted(stored)
    assert [int(record.payload) for record in found] == [stored[sequence] for sequence in sorted(stored)]


async def test_records_go_on_after_a_reconnection(bus: Bus, fragile: Fragile) -> None:
    seen: Mailbox[Record] = Mailbox()

    async def follow() -> None:
        async with aclosing(fragile.bus.records("rollout.run.>")) as records:
            async for record in records:
                seen.put(record)

    async with background(follow):
        for number in range(30):
            await bus.commit(f"rollout.run.{number}.0", b"%d" % number)
            if number % 10 == 5:
                await seen.until(number)
                fragile.cut()
            elif number % 10 == 9:
                fragile.mend()
        found = await seen.until(30)
    assert [int(record.payload) for record in found] == list(range(30))


async def test_every_reader_sees_everything(bus: Bus, other: Bus) -> None:
    for number in range(10):
        await bus.commit(f"rollout.run.{number}.0", b"%d" % number)
    for reader in (bus, other, bus):
        assert [int(record.payload) for record in await take(reader, "rollout.run.>", 10)] == list(range(10))


async def test_latest_is_the_newest_record_of_each_subject_in_stored_order(bus: Bus) -> None:
    assert await bus.latest("journal.>") == []
    assert await bus.latest("journal.r.0.0") == []
    for number in range(9):
        await bus.append(f"journal.r.{number % 3}.0", b"%d" % number)
    await bus.append("journal.r.0.0", b"9")
    assert [(record.subject, record.payload) for record in await bus.latest("journal.>")] == [
        ("journal.r.1.0", b"7"),
        ("journal.r.2.0", b"8"),
        ("journal.r.0.0", b"9"),
    ]
    (one,) = await bus.latest("journal.r.1.0")
    assert one.payload == b"7"


async def test_latest_of_more_subjects_than_fit_in_one_answer(bus: Bus) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(700):
            tasks.start_soon(bus.append, f"runs.run{number}", b"%d" % number)
    found = await bus.latest("runs.>")
    assert sorted(int(record.payload) for record in found) == list(range(700))
    assert sorted(record.sequence for record in found) == [record.sequence for record in found]


async def test_forget_deletes_what_is_stored_under_a_pattern(bus: Bus, other: Bus) -> None:
    for number in range(6):
        await bus.append(f"journal.run{number % 2}.0.0", b"%d" % number)
    assert await other.forget("journal.run0.>") == 3
    assert await bus.counts("journal.>") == {"journal.run1.0.0": 3}
    assert [int(record.payload) for record in await take(bus, "journal.>", 3)] == [1, 3, 5]
    assert await other.forget("journal.run0.>") == 0
    sequence = await bus.append("journal.run0.0.0", b"6")
    assert sequence > (await bus.latest("journal.run1.0.0"))[0].sequence


async def test_forget_deletes_what_is_before_a_sequence(bus: Bus, other: Bus) -> None:
    for number in range(6):
        assert await bus.commit(f"rollout.run{number % 2}.{number}", b"%d" % number)
    fourth = (await take(bus, "rollout.>", 4))[3]
    assert await other.forget("rollout.run0.>", before=fourth.sequence) == 2
    assert [int(record.payload) for record in await take(bus, "rollout.>", 4)] == [1, 3, 4, 5]
    assert await other.forget("rollout.run1.>", before=fourth.sequence) == 1
    assert not await bus.commit("rollout.run1.3", b"again")
    assert await bus.commit("rollout.run1.1", b"again")
    assert [int(record.payload) for record in await take(bus, "rollout.run1.*", 2)] == [3, 5]


async def test_counts(bus: Bus) -> None:
    assert await bus.counts("journal.>") == {}
    for number in range(5):
        await bus.append(f"journal.run.{number % 2}.0", b"")
    await bus.append("journal.other.0.0", b"")
    assert await bus.counts("journal.run.>") == {"journal.run.0.0": 3, "journal.run.1.0": 2}
    assert await bus.counts("journal.run.1.0") == {"journal.run.1.0": 2}


# -- blobs ----------------------------------------------------------------------------------------------


def pattern_bytes(size: int) -> bytes:
    """Bytes without a short period, so that a chunk out of place shows."""
    return b"".join(b"%08x" % number for number in range(-(-size // 8)))[:size]


SIZES = [INLINE_BYTES, INLINE_BYTES + 1, 1_000_000, 5_000_000]


@pytest.mark.parametrize("size", SIZES)
async def test_large_requests_and_answers(bus: Bus, other: Bus, size: int) -> None:
    payload = pattern_bytes(size)
    async with answering(other, "service.echo", lambda incoming: incoming.payload[::-1]):
        assert await ask(bus, "service.echo", payload, headers={"k": "v"}) == payload[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES[1:])
async def test_large_signals(bus: Bus, other: Bus, size: int) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("signal.>", seen.put):
        await bus.publish("signal.large", pattern_bytes(size), headers={"k": "v"})
        assert await seen.until(1) == [Incoming("signal.large", pattern_bytes(size), "", {"k": "v"})]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES[1:])
async def test_large_tasks(bus: Bus, other: Bus, size: int) -> None:
    await bus.enqueue("task.a.b", pattern_bytes(size), headers={"k": "v"})
    pool = Pool()
    async with pulling(other, pool.ack):
        (delivery,) = await pool.first(1)
    assert delivery.payload == pattern_bytes(size)
    assert delivery.headers == {"k": "v"}


@pytest.mark.parametrize("size", SIZES[1:])
async def test_large_records(bus: Bus, other: Bus, size: int) -> None:
    payload = pattern_bytes(size)
    assert await bus.commit("rollout.run.0.0", payload) is True
    assert await other.commit("rollout.run.0.0", payload) is False
    assert await bus.commit("rollout.run.0.1", b"small") is True
    assert [record.payload for record in await other.latest("rollout.run.>")] == [payload, b"small"]
    assert [record.payload for record in await take(other, "rollout.>", 2)] == [payload, b"small"]
    await bus.append("journal.r.0.0", payload)
    assert [record.payload for record in await take(other, "journal.>", 1)] == [payload]
    assert await other.forget("journal.r.0.0") == 1
    assert await other.counts("rollout.>") == {"rollout.run.0.0": 1, "rollout.run.0.1": 1}


@pytest.mark.parametrize(
    "payload", [b"\x00", b"\x00gym-blob\x00", b'\x00gym-blob\x00{"digest":"x"}', b"\x00" * 1000]
)
async def test_no_payload_is_mistaken_for_a_reference(bus: Bus, other: Bus, payload: bytes) -> None:
    async with answering(other, "service.echo", lambda incoming: incoming.payload):
        assert await ask(bus, "service.echo", payload) == payload
    await bus.append("journal.r.0.0", payload)
    assert [record.payload for record in await other.latest("journal.>")] == [payload]


async def test_payload_too_large(bus: Bus, other: Bus) -> None:
    # Zeroed pages that nobody touches: this takes no memory.
    payload = bytes(BLOB_BYTES + 1)
    async with other.serve("service.x", silent):
        for send in (
            partial(ask, bus, "service.x", payload),
            partial(bus.publish, "service.x", payload),
            partial(bus.enqueue, "task.a.b", payload),
            partial(bus.commit, "rollout.run.0.0", payload),
            partial(bus.append, "journal.run.0.0", payload),
        ):
            with anyio.fail_after(SOON_S), pytest.raises(PayloadTooLarge):
                await send()
    assert await bus.commit("rollout.run.0.0", b"") is True


# -- the end --------------------------------------------------------------------------------------------


async def test_close_fails_requests_in_flight(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()

    async def lose() -> None:
        with pytest.raises(ConnectionLost):
            await ask(bus, "service.mute", within_s=3600)

    async with other.serve("service.mute", seen.put):
        with anyio.fail_after(SOON_S):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(lose)
                await seen.until(3)
                await bus.aclose()
            with pytest.raises(ConnectionLost):
                await ask(bus, "service.mute", within_s=3600)


async def test_close_sends_what_is_buffered(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("signal.x", seen.put):
        for number in range(500):
            await bus.publish("signal.x", b"%d" % number)
        await bus.aclose()
        received = await seen.until(500)
    assert [int(incoming.payload) for incoming in received] == list(range(500))


async def test_close_twice_is_once(bus: Bus) -> None:
    await bus.aclose()
    await bus.aclose()


async def test_the_nearest_copy_of_one_subject(bus: Bus) -> None:
    subject = "journal.r.0.0.0.role.a"
    assert await bus.latest(subject, nearest=True) == []
    large = b"x" * (INLINE_BYTES + 1)
    for payload in (b"old", large):
        await bus.append(subject, payload)
    assert [record.payload for record in await bus.latest(subject, nearest=True)] == [large]
    assert await bus.latest("journal.r.0.0.0", nearest=True) == []
