"""The part of the in-memory bus that all connections share: subscriptions, stored data, faults."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import msgspec
from gym_runtime import clock
from gym_runtime.bus import BLOB_BYTES, Headers, Incoming, is_pattern
from gym_runtime.errors import UsageError

from gym_testing.memory.faults import NO_FAULTS, Fate, Faults, Kind, Passing
from gym_testing.memory.line import Action, Line
from gym_testing.memory.memory_bus import MemoryBus
from gym_testing.memory.store import Stream
from gym_testing.memory.subject_patterns import compiled
from gym_testing.memory.work_queue import WorkQueue

BUFFER_BYTES = 32 * 1024 * 1024


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
        buffer_bytes: how much a connection may buffer before its senders must wait.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float] = clock.monotonic,
        faults: Faults = NO_FAULTS,
        seed: int = 0,
        max_bytes: int = BLOB_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
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
        self._buffer_bytes = buffer_bytes
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
        bus = self._connections[name] = MemoryBus(self, Line(name, self._buffer_bytes))
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
