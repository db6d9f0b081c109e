"""What a bus promises. Two classes implement it: NATS (`bus.nats`) and in memory (`gym_testing.memory`).

Subjects are dot-separated tokens under one configurable prefix, which callers never write: they say
``resource.mcqa``, the wire says ``gym.resource.mcqa``. In a subscription ``*`` stands for one token and
a trailing ``>`` for one or more. Payloads are opaque bytes. Everything runs on one event loop; nothing
here is thread-safe.

**Requests.** `Bus.request` either returns the answer's payload or raises, before the deadline:
`NoWorker` at once when no process serves the subject, `ConnectionLost` at once when the connection breaks
while waiting (the request may or may not have been executed), `DeadlineExceeded` otherwise. A cancelled
request raises the cancellation at once, a stopped one `Stopped`, and a late answer is dropped.

**Serving.** `Bus.serve` calls a plain function for every message, in order of arrival on that
subscription; it must not block, and starts tasks in its own task group for anything longer. With
``queue`` each message goes to one of the subscribers of that queue.

**Signals.** `Bus.publish` is at most once and unordered across subjects. It waits while the connection's
outgoing buffer is full, and can be cancelled there.

**Work queue.** `Bus.enqueue` returns when the task is stored. `Bus.pull` never holds more unfinished
deliveries than it has slots. A delivery that is neither acked nor kept alive is delivered again after
``ack_wait_s``, to any worker, with ``deliveries`` one higher. `Delivery.ack` returns when the ack is sent;
a lost ack means a redelivery.

**Commit once.** `Bus.commit` stores a payload under a subject that was never stored before and returns
True; it returns False when there was one, until that is forgotten: by `Bus.forget`, or 37 days later. A
task is delivered for 30 days, so a second attempt at it finds the first one's result unless it takes more
than a week. After an error the caller does not know, and asks again.

**Ordered consumption.** `Bus.records` yields what is stored under a pattern, each exactly once and in
stored order, first the past, then as it comes, through reconnections; it fetches only as fast as it is
read. `Bus.latest` reads the newest record of each subject, and `Bus.forget` deletes.

**Blobs.** A payload above `INLINE_BYTES`, or less at a small broker (`gym_runtime.bus.blobs`), travels by
reference: the bus stores it encrypted, sends the reference with its key, and the receiving bus fetches it
before it hands it over. Callers do not see it,
except that a blob that is part of a run stays until it expires or ``blob.run.<run>.>`` is forgotten. Blobs of
requests, answers and signals expire after minutes. `PayloadTooLarge` only above `BLOB_BYTES`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio
import msgspec

from gym_runtime.bus.pull import Rank, Slots
from gym_runtime.timing import TASK_ACK_WAIT_S

HEADER_BYTES = 64 * 1024
"""Room for the headers of a message, which count towards what a broker takes."""
# By reference a payload is stored and read again, which costs a long conversation several times as much.
INLINE_BYTES = 32 * 1024 * 1024 - HEADER_BYTES
"""What travels inline at a broker that this project starts."""
BLOB_BYTES = 1024 * 1024 * 1024

Headers = Mapping[str, str]


class Incoming(msgspec.Struct, frozen=True):
    """A message as a subscriber sees it. ``reply`` is where to `Bus.publish` an answer, or empty."""

    subject: str
    payload: bytes
    reply: str = ""
    headers: Headers | None = None


class Record(msgspec.Struct, frozen=True):
    """A stored message. ``sequence`` grows within a stream."""

    subject: str
    payload: bytes
    sequence: int


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """How much is waiting: tasks not yet delivered, and tasks delivered but not finished."""

    waiting: int
    in_flight: int


class Stopped(Exception):
    """A request was stopped before its answer came."""


class Stop:
    """What stops one request, once, from outside.

    A cancel scope of anyio would do the same, takes ten times as long, and a rollout makes five requests.
    Nothing is cancelled: the future that the request waits for gets a result.

    Attributes:
        stopped: whether it was used.
    """

    __slots__ = ("_end", "stopped")

    def __init__(self) -> None:
        self.stopped = False
        self._end: Callable[[], object] | None = None

    def stop(self) -> None:
        """Have the request raise `Stopped`, now or when it begins to wait; nothing if its answer has come."""
        self.stopped = True
        if self._end is not None:
            self._end()

    def calls(self, end: Callable[[], object]) -> None:
        """The request begins to wait, and ``end`` ends the waiting.

        Raises:
            Stopped: it was stopped before.
        """
        if self.stopped:
            raise Stopped
        self._end = end


class Delivery(Protocol):
    """One delivery of one task."""

    @property
    def subject(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def headers(self) -> Headers | None: ...
    @property
    def deliveries(self) -> int:
        """How often the task was delivered, this time included."""
        ...

    @property
    def stored_s(self) -> float:
        """When the task was stored, by the broker's clock, in seconds since the epoch."""
        ...

    async def ack(self) -> None:
        """The task is done; it is removed from the queue."""
        ...

    async def release(self, delay_s: float = 0.0) -> None:
        """Give the task back; it is delivered again, not before ``delay_s``."""
        ...

    def abandon(self) -> None:
        """Do nothing with the task: another worker has it by now."""
        ...


class Bus(Protocol):
    """The promises above, as methods. Subjects are without the prefix."""

    @property
    def connected_s(self) -> float:
        """When it connected again after a break, a time of `gym_runtime.clock.monotonic`; inf during a break,
        -inf before the first one."""
        ...

    @property
    def crowded(self) -> bool:
        """Whether what is sent now has to wait for what was sent before; see `ease`."""
        ...

    @property
    def refused(self) -> str:
        """Why the broker does not store what is being stored here now; empty if it does."""
        ...

    async def stores(self) -> None:
        """Return when nothing that is being stored here is refused."""
        ...

    async def ease(self, deadline_s: float) -> None:
        """Return when it is not crowded, in the order of the calls, or at the deadline.

        Call this before encoding something large: the encoded copy would take memory while it waits.
        """
        ...

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
        """Ask and wait for the answer. ``deadline_s`` is a time of `gym_runtime.clock.monotonic`.

        ``run`` is the run that this is part of; a large payload is forgotten with it.

        Raises:
            NoWorker, ConnectionLost, DeadlineExceeded, PayloadTooLarge: as described in this module.
            Stopped: ``stop`` was used while it waited for the answer.
        """
        ...

    async def publish(
        self, subject: str, payload: bytes, *, headers: Headers | None = None, run: str = ""
    ) -> None:
        """Send a signal, or an answer to ``Incoming.reply``; ``run`` as for `request`."""
        ...

    def serve(
        self, subject: str, receive: Callable[[Incoming], None], *, queue: str = ""
    ) -> AbstractAsyncContextManager[None]:
        """Receive what is sent to a subject or pattern until the context ends.

        Raises:
            BrokerError: The broker does not let us listen there.
        """
        ...

    async def enqueue(
        self, subject: str, payload: bytes, *, headers: Headers | None = None, once: bool = False
    ) -> None:
        """Put a task on the work queue; ``subject`` starts with ``task.``. Safe to call concurrently.

        With ``once`` nothing is put there while a task of exactly this subject is queued or worked on.
        """
        ...

    async def open_queue(self, pattern: str, *, consumer: str, most: int | None = None) -> None:
        """Make the durable consumer that `pull` uses, or adapt it, so that its `depth` is known before a
        worker exists.

        Raises:
            BrokerError: the broker refuses it.
        """
        ...

    async def close_queue(self, pattern: str, *, consumer: str) -> None:
        """Have the broker forget a queue's consumer soon, once no worker pulls it; what is stored stays.

        A consumer that does not exist is no error. Only queues that were opened with ``most`` are closed.

        Raises:
            BrokerError: the broker refuses it.
        """
        ...

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
        """Work on the queue until cancelled: call ``handle`` for each delivery, ``slots`` at a time.

        Once ``stop`` is set, nothing new is taken; it returns when what is in flight is finished.

        ``slots`` is a number, or `Slots` that several pulls share; these divide them evenly as far as their
        queues have tasks; or by ``rank``, where theirs differ.

        ``most`` is for a queue that does not stay: so many of its tasks are in flight over all workers, 0 for
        no limit, and its consumer is forgotten a day after the last worker has left. Its tasks stay.

        ``consumer`` names the durable consumer that all workers of one pattern share. Deliveries are kept
        alive while ``handle`` runs. ``handle`` decides between `Delivery.ack` and `Delivery.release`; one
        that does neither (nor abandons it), or raises, gives the task back. Cancelling gives back what is
        unfinished.
        """
        ...

    async def commit(self, subject: str, payload: bytes) -> bool:
        """Store once; ``subject`` starts with ``rollout.``. True if this call stored it."""
        ...

    async def append(
        self, subject: str, payload: bytes, *, expect: int | None = None, once: bool = False
    ) -> int | None:
        """Store one more record under a subject of ``journal.`` or ``runs.``; returns its sequence.

        With ``expect`` it is stored only if that is the sequence of the subject's newest record (0 if the
        subject has no record); else None comes back, because another writer has stored one meanwhile.
        With ``once`` it is stored only if the subject has no record, and None may also stand for a record of
        this call. Both `enqueue` and this take it where permission to read the subject's stream is lacking.
        """
        ...

    def records(self, pattern: str, *, after: int = 0) -> AsyncIterator[Record]:
        """Stored records of a pattern with a sequence above ``after``, past and future, in order."""
        ...

    async def latest(self, pattern: str, *, nearest: bool = False) -> list[Record]:
        """The newest record of every stored subject of a pattern, in stored order.

        With ``nearest``, for one subject, any replica answers, perhaps a moment behind, and permission to
        read this subject suffices; the record's sequence is 0.
        """
        ...

    async def forget(self, pattern: str, *, before: int | None = None) -> int:
        """Delete what is stored under a pattern (tasks and blobs included); returns how many records.

        With ``before`` only records with a smaller sequence; not for tasks.
        """
        ...

    async def depth(self, consumer: str) -> QueueDepth:
        """The work queue as one consumer sees it; zeros when there is no such consumer yet."""
        ...

    async def counts(self, pattern: str) -> dict[str, int]:
        """How many records are stored under each subject of a pattern."""
        ...

    async def aclose(self) -> None:
        """Send what is buffered and disconnect; requests in flight fail with `ConnectionLost`."""
        ...
