"""The in-memory bus: the broker that all connections share, and `MemoryBus`, one simulated worker's bus."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio
import msgspec
from gym_runtime import clock
from gym_runtime.bus import (
    BLOB_BYTES,
    Delivery,
    Headers,
    Incoming,
    Names,
    QueueDepth,
    Rank,
    Record,
    Slots,
    Stop,
    Stopped,
    checked,
    is_pattern,
)
from gym_runtime.errors import (
    BrokerError,
    ConnectionLost,
    DeadlineExceeded,
    GymError,
    NoWorker,
    PayloadTooLarge,
    UsageError,
)
from gym_runtime.timing import PATIENCE_S, TASK_ACK_WAIT_S

from gym_testing.memory.faults import NO_FAULTS, Fate, Faults, Kind, Passing
from gym_testing.memory.line import CLOSED, Action, Line
from gym_testing.memory.store import Stream
from gym_testing.memory.subject_patterns import compiled
from gym_testing.memory.work_queue import Puller, WorkQueue

_INBOX = "_INBOX:"
_NAMES = Names("gym")

T = TypeVar("T")


class Subscription(msgspec.Struct, frozen=True, eq=False):
    """A subscription to a subject or pattern."""

    pattern: str
    queue: str
    line: Line
    receive: Callable[[Incoming], None]


class MemoryBroker:
    """Everything that `MemoryBus` connections share. Belongs to the event loop it is first used on.

    Args:
        now: the clock by which deadlines are counted, in seconds.
        faults: what happens to messages on their way.
        seed: of all chance in the broker: the choice among a queue's subscribers, and the faults.
        max_bytes: the largest payload.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float] = clock.monotonic,
        faults: Faults = NO_FAULTS,
        seed: int = 0,
        max_bytes: int = BLOB_BYTES,
    ) -> None:
        self.now = now
        self.max_bytes = max_bytes
        self.dice = random.Random(seed)
        self.streams = {
            "rollout": Stream("rollout"),
            "journal": Stream("journal"),
            "runs": Stream("runs", newest_only=True),
        }
        self.queue = WorkQueue(self.carry)
        self._faults = faults
        self._connections: dict[str, MemoryBus] = {}
        self._made = 0
        self._exact: dict[str, list[Subscription]] = {}
        self._wild: list[Subscription] = []
        self._signals_due_s: dict[tuple[str, str, str], float] = {}

    def __getitem__(self, name: str) -> MemoryBus:
        """The open connection of a name."""
        return self._connections[name]

    @asynccontextmanager
    async def connect(self, name: str = "") -> AsyncGenerator[MemoryBus]:
        """A connection, until the context ends; without a name it gets the next free ``bus-1``, ``bus-2`` …

        Raises:
            UsageError: A connection of this name is open.
        """
        self._made += 1
        name = name or f"bus-{self._made}"
        if name in self._connections:
            raise UsageError(f"a connection {name!r} is open already; each needs its own name")
        bus = self._connections[name] = MemoryBus(self, Line(name))
        try:
            yield bus
        finally:
            await bus.aclose()

    def forget_connection(self, name: str) -> None:
        """A connection was closed."""
        self._connections.pop(name, None)

    # -- messages -------------------------------------------------------------------------------------

    def subscribe(
        self, pattern: str, receive: Callable[[Incoming], None], *, queue: str, line: Line
    ) -> Callable[[], None]:
        """Listen, from now on; returns a function that ends it."""
        subscription = Subscription(pattern, queue, line, receive)
        listeners = self._wild if is_pattern(pattern) else self._exact.setdefault(pattern, [])
        listeners.append(subscription)
        return partial(listeners.remove, subscription)

    def route(
        self, kind: Kind, sender: Line, subject: str, payload: bytes, headers: Headers | None, reply: str = ""
    ) -> bool:
        """Send a message to the subscribers; False without any."""
        listeners = [
            *self._exact.get(subject, ()),
            *(wild for wild in self._wild if compiled(wild.pattern).fullmatch(subject)),
        ]
        queues: dict[str, list[Subscription]] = {}
        chosen: list[Subscription] = []
        for listener in listeners:
            if not listener.line.up:
                continue
            if listener.queue:
                queues.setdefault(listener.queue, []).append(listener)
            else:
                chosen.append(listener)
        chosen += [self.dice.choice(members) for members in queues.values()]
        for listener in chosen:
            own = None if headers is None else dict(headers)
            incoming = Incoming(subject, payload, reply, own)
            self.carry(kind, subject, sender, listener.line, partial(listener.receive, incoming))
        return bool(chosen)

    def answer(self, sender: Line, reply: str, payload: bytes) -> None:
        """Send an answer to the connection that asked, if it is still open."""
        _, name, number = reply.split(":")
        asker = self._connections.get(name)
        if asker is not None:
            take = partial(asker.take_answer, int(number), payload)
            self.carry("answer", reply, sender, asker.line, take)

    def carry(
        self, kind: Kind, subject: str, sender: Line | None, receiver: Line | None, action: Action
    ) -> bool:
        """Transmit a message with the faults of the policy; None as sender or receiver is the broker.

        Returns False if it is lost.
        """
        fate = self.fate(kind, subject, sender, receiver)
        if fate.drop or (receiver is not None and not receiver.up):
            return False
        arrive = action if receiver is None else partial(receiver.arrive, action, receiver.cuts)
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        due_s = now_s + fate.delay_s
        if kind == "signal" and sender is not None and receiver is not None:
            due_s = self._in_turn((sender.name, receiver.name, subject), now_s, due_s)
        for _ in range(2 if fate.double and kind not in ("signal", "delivery") else 1):
            if due_s > now_s:
                loop.call_at(due_s, arrive)
            else:
                arrive()
        return True

    def fate(self, kind: Kind, subject: str, sender: Line | None, receiver: Line | None = None) -> Fate:
        """The policy's decision; connections that it cuts or freezes are cut or frozen here."""
        passing = Passing(kind, subject, sender.name if sender else "", receiver.name if receiver else "")
        fate = self._faults.fate(passing, self.dice)
        for names, strike, heal in ((fate.cut, Line.cut, Line.mend), (fate.freeze, Line.freeze, Line.thaw)):
            for name in names:
                if name in self._connections:
                    line = self._connections[name].line
                    strike(line)
                    asyncio.get_running_loop().call_later(fate.lasts_s, heal, line)
        return fate

    def _in_turn(self, way: tuple[str, str, str], now_s: float, due_s: float) -> float:
        """When a signal is due, so that it does not overtake the earlier ones on its subject."""
        before_s = self._signals_due_s.pop(way, -math.inf)
        if before_s >= now_s:
            # Timers of the same moment go off in any order.
            due_s = max(due_s, math.nextafter(before_s, math.inf))
        if due_s > now_s:
            self._signals_due_s[way] = due_s
        return due_s


class _Question:
    """A request that waits for its answer."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.outcome: bytes | GymError | Stopped | None = None

    def settle(self, outcome: bytes | GymError | Stopped) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self.done.set()


class MemoryBus:
    """A `gym_runtime.bus.interface.Bus`. Made by `MemoryBroker.connect`.

    `cut` and `mend`, `freeze` and `thaw` do to it what a network does, or the kernel to a stopped process.
    """

    def __init__(self, broker: MemoryBroker, line: Line) -> None:
        self.line = line
        self.cut = line.cut
        self.mend = line.mend
        self.freeze = line.freeze
        self.thaw = line.thaw
        self._broker = broker
        self._questions: dict[int, _Question] = {}
        self._asked = 0
        self._unwatch = line.watch(self._on_line)

    @property
    def name(self) -> str:
        """The connection's name, as a `Faults` policy sees it."""
        return self.line.name

    @property
    def connected_s(self) -> float:
        return self.line.mended_s

    crowded = False
    refused = ""

    async def ease(self, deadline_s: float) -> None:
        """Nothing is ever crowded here."""

    async def stores(self) -> None:
        """Nothing is ever refused here."""

    # -- requests and signals -------------------------------------------------------------------------

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        deadline_s: float,
        headers: Headers | None = None,
        run: str = "",
        stop: Stop | None = None,
    ) -> bytes:
        _NAMES.subject(subject)
        payload, headers = self._checked(subject, payload), _as_sent(headers)
        left_s = deadline_s - self._broker.now()
        question = _Question()
        self._asked += 1
        number = self._asked
        with anyio.move_on_after(max(0.0, left_s)):
            await self.line.room()
            await self.line.passable()
            self._questions[number] = question
            try:
                if stop is not None:
                    stop.calls(partial(question.settle, Stopped()))
                self._ask(number, question, subject, payload, headers)
                await question.done.wait()
            finally:
                del self._questions[number]
        if question.outcome is None:
            raise DeadlineExceeded(f"no answer on {subject!r} within {left_s:.1f} s")
        if isinstance(question.outcome, GymError | Stopped):
            raise question.outcome
        return question.outcome

    def _ask(
        self, number: int, question: _Question, subject: str, payload: bytes, headers: Headers | None
    ) -> None:
        reply = f"{_INBOX}{self.name}:{number}"

        def ask() -> None:
            if not self._broker.route("request", self.line, subject, payload, headers, reply):
                self.line.arrive(partial(question.settle, NoWorker(f"no worker serves {subject!r}")))

        self.line.send(ask, len(payload))

    def take_answer(self, number: int, payload: bytes) -> None:
        """The broker hands over an answer; a late one is dropped."""
        question = self._questions.get(number)
        if question is not None:
            question.settle(payload)

    def _on_line(self, up: bool) -> None:
        if not up:
            why = CLOSED if self.line.closed else "the connection to the broker broke"
            for question in self._questions.values():
                question.settle(ConnectionLost(why))

    async def publish(
        self, subject: str, payload: bytes, *, headers: Headers | None = None, run: str = ""
    ) -> None:
        answering = subject.startswith(_INBOX)
        if not answering:
            _NAMES.subject(subject)
        payload, headers = self._checked(subject, payload), _as_sent(headers)
        await self.line.room()
        if answering:
            self.line.send(partial(self._broker.answer, self.line, subject, payload), len(payload))
        else:
            route = partial(self._broker.route, "signal", self.line, subject, payload, headers)
            self.line.send(route, len(payload))

    @asynccontextmanager
    async def serve(
        self, subject: str, receive: Callable[[Incoming], None], *, queue: str = ""
    ) -> AsyncGenerator[None]:
        _NAMES.pattern(subject)
        await self.line.room()
        serving = True

        def take(incoming: Incoming) -> None:
            if serving:
                receive(incoming)

        unsubscribe = self._broker.subscribe(subject, take, queue=queue, line=self.line)
        try:
            yield
        finally:
            serving = False
            unsubscribe()

    # -- the work queue -------------------------------------------------------------------------------

    async def enqueue(
        self, subject: str, payload: bytes, *, headers: Headers | None = None, once: bool = False
    ) -> None:
        _starts_with(subject, "task")
        payload, headers = self._checked(subject, payload), _as_sent(headers)
        await self._stored(subject, lambda: self._broker.queue.add(subject, payload, headers, once=once))

    async def open_queue(self, pattern: str, *, consumer: str, most: int | None = None) -> None:
        _starts_with(pattern, "task", pattern=True)
        await self._stored(
            "task", lambda: self._broker.queue.consumer(consumer, pattern, TASK_ACK_WAIT_S, most)
        )

    async def close_queue(self, pattern: str, *, consumer: str) -> None:
        _starts_with(pattern, "task", pattern=True)
        await self._stored("task", lambda: self._broker.queue.close(consumer))

    async def pull(
        self,
        pattern: str,
        *,
        consumer: str,
        slots: int | Slots,
        handle: Callable[[Delivery], Awaitable[None]],
        ack_wait_s: float = TASK_ACK_WAIT_S,
        stop: anyio.Event | None = None,
        most: int | None = None,
        rank: Rank | None = None,
    ) -> None:
        _starts_with(pattern, "task", pattern=True)
        await self.line.passable(PATIENCE_S)
        queue = self._broker.queue
        shared = queue.consumer(consumer, pattern, ack_wait_s, most)
        places = Slots(slots) if isinstance(slots, int) else slots
        puller = Puller(queue, self._broker.carry, self.line, shared, slots=places, handle=handle, rank=rank)
        await puller.run(stop)

    async def depth(self, consumer: str) -> QueueDepth:
        return await self._stored("task", lambda: self._broker.queue.depth(consumer))

    # -- records --------------------------------------------------------------------------------------

    async def commit(self, subject: str, payload: bytes) -> bool:
        _starts_with(subject, "rollout")
        payload = self._checked(subject, payload)
        stream = self._broker.streams["rollout"]
        return await self._stored(subject, lambda: stream.store(subject, payload, expect=0)) is not None

    async def append(
        self, subject: str, payload: bytes, *, expect: int | None = None, once: bool = False
    ) -> int | None:
        _starts_with(subject, "journal", "runs")
        payload = self._checked(subject, payload)
        stream = self._stream(subject)
        expect = 0 if once else expect
        return await self._stored(subject, lambda: stream.store(subject, payload, expect=expect))

    async def records(self, pattern: str, *, after: int = 0) -> AsyncGenerator[Record]:
        _starts_with(pattern, "rollout", "journal", "runs", pattern=True)
        stream = self._stream(pattern)
        changed = anyio.Event()
        unwatch = self.line.watch(lambda up: changed.set())
        try:
            while True:
                await self.line.passable()
                found, after = stream.read(pattern, after)
                for record in found:
                    yield record
                if not found:
                    changed = anyio.Event()
                    stream.when_stored(changed)
                    await changed.wait()
        finally:
            stream.give_up(changed)
            unwatch()

    async def latest(self, pattern: str, *, nearest: bool = False) -> list[Record]:
        _starts_with(pattern, "rollout", "journal", "runs", pattern=True)
        stream = self._stream(pattern)
        return await self._stored(pattern, lambda: stream.latest(pattern))

    async def forget(self, pattern: str, *, before: int | None = None) -> int:
        _starts_with(pattern, "task", "rollout", "journal", "runs", "blob", pattern=True)
        if pattern.startswith("blob."):
            return 0  # large payloads travel as they are
        if pattern.startswith("task."):
            return await self._stored(pattern, lambda: self._broker.queue.forget(pattern))
        stream = self._stream(pattern)
        return await self._stored(pattern, lambda: stream.forget(pattern, before))

    async def counts(self, pattern: str) -> dict[str, int]:
        _starts_with(pattern, "task", "rollout", "journal", "runs", pattern=True)
        stored = self._stream(pattern) if not pattern.startswith("task.") else self._broker.queue
        return await self._stored(pattern, lambda: stored.counts(pattern))

    def _stream(self, subject: str) -> Stream:
        return self._broker.streams[subject.partition(".")[0]]

    # -- the end --------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        self.line.close()
        self._broker.forget_connection(self.name)

    # -- the inside -----------------------------------------------------------------------------------

    async def _stored(self, subject: str, act: Callable[[], T]) -> T:
        """Ask the broker to store, read or delete something. After an error it may have been done."""
        await self.line.passable(PATIENCE_S)
        fate = self._broker.fate("store", subject, self.line)
        if fate.delay_s > 0:
            await anyio.sleep(fate.delay_s)
        await self.line.passable(PATIENCE_S)
        if fate.drop:
            if self._broker.dice.random() < 0.5:
                act()
            raise BrokerError(f"the broker stored or answered nothing on {subject!r}")
        return act()

    def _checked(self, subject: str, payload: bytes) -> bytes:
        if len(payload) > self._broker.max_bytes:
            raise PayloadTooLarge(
                f"{len(payload)} bytes on {subject!r}; the limit is {self._broker.max_bytes}"
            )
        return bytes(payload)


def _as_sent(headers: Headers | None) -> Headers | None:
    """Headers as they would arrive over the wire, refused or trimmed as there."""
    return checked(headers) or None if headers else None


def _starts_with(subject: str, *kinds: str, pattern: bool = False) -> None:
    (_NAMES.pattern if pattern else _NAMES.subject)(subject)
    if subject.partition(".")[0] not in kinds or "." not in subject:
        raise UsageError(f"{subject!r} must start with one of {', '.join(f'{kind}.' for kind in kinds)}")
