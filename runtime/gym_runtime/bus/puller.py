"""Working on the queue: runs the credit rules of `gym_runtime.bus.pull` against a durable consumer.

One inbox per connection takes deliveries and statuses; one timer keeps all deliveries alive; each
delivery runs in a task group of its own puller.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup

from gym_runtime.bus.blobs import Blobs
from gym_runtime.bus.contract import Delivery, Headers
from gym_runtime.bus.link import Link
from gym_runtime.bus.pull import (
    Ask,
    Beat,
    Broke,
    Command,
    Credit,
    Delivered,
    Ended,
    Event,
    Finished,
    Opened,
    Stopped,
    Ticked,
    Vanished,
    step,
)
from gym_runtime.bus.streams import Streams
from gym_runtime.bus.wire import decode_headers, description, status
from gym_runtime.errors import GymError

log = structlog.get_logger(__name__)

EXPIRES_S = 30.0
HEARTBEAT_S = 5.0
MAX_ACK_PENDING = 65536
"""Tasks in flight over all workers of a pattern; the broker's default of 1000 would stall them."""
CLEANUP_S = 2.0
RELEASE_S = (0.0, 0.2, 1.0, 5.0)
"""How long a task is put back for after its 1st, 2nd, … failed delivery."""


class QueueDelivery:
    """A `gym_runtime.bus.contract.Delivery` of the work queue."""

    def __init__(self, link: Link, subject: str, reply: str, header: bytes, payload: bytes) -> None:
        self._link = link
        self._reply = reply
        self._header = header
        self.subject = subject
        self.payload = payload
        self.deliveries = Stamp.of(reply.encode()).deliveries
        self.settled = False

    @property
    def headers(self) -> Headers | None:
        found = decode_headers(self._header) if self._header else {}
        return {name: value for name, value in found.items() if not name.startswith("Nats-")} or None

    async def ack(self) -> None:
        if not self.settled:
            self.settled = True
            await self._link.send(self._reply, b"+ACK")

    async def release(self, delay_s: float = 0.0) -> None:
        if not self.settled:
            self.give_back(delay_s)

    def give_back(self, delay_s: float) -> None:
        """`release`, for places that cannot wait."""
        self.settled = True
        self._link.post(self._reply, b"-NAK" + (b' {"delay": %d}' % int(delay_s * 1e9) if delay_s > 0 else b""))

    def keep_alive(self) -> None:
        """Start the broker's wait for an acknowledgement anew."""
        if not self.settled:
            self._link.post(self._reply, b"+WPI")


class Stamp(msgspec.Struct, frozen=True):
    """What the broker writes into the reply subject of a stored message."""

    deliveries: int
    sequence: int
    """In the stream."""
    consumed: int
    """In the consumer: how many it has delivered, this one included."""
    pending: int
    """How many the consumer still has to deliver."""

    @staticmethod
    def of(reply: bytes) -> Stamp:
        """``$JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.consumed.time.pending[.token]``"""
        words = reply.split(b".")
        at = 4 if len(words) < 11 else 6
        return Stamp(int(words[at]), int(words[at + 1]), int(words[at + 2]), int(words[at + 4]))


class Puller:
    """One call of `gym_runtime.bus.contract.Bus.pull`."""

    def __init__(
        self,
        link: Link,
        streams: Streams,
        blobs: Blobs,
        *,
        pattern: str,
        consumer: str,
        slots: int,
        handle: Callable[[Delivery], Awaitable[None]],
        ack_wait_s: float,
        heartbeat_s: float = HEARTBEAT_S,
        expires_s: float = EXPIRES_S,
    ) -> None:
        self._link = link
        self._streams = streams
        self._blobs = blobs
        self._pattern = streams.names.pattern(pattern)
        self._stream = streams.names.stream(pattern)
        self._consumer = streams.names.consumer(consumer)
        self._handle = handle
        self._ack_wait_s = ack_wait_s
        self._expires_s = expires_s
        self._credit = Credit(slots=slots, heartbeat_s=heartbeat_s)
        self._in_flight: set[QueueDelivery] = set()
        self._inbox: tuple[str, int] | None = None
        self._wake = anyio.Event()
        self._restore = True
        self._broken = 0
        self._tasks: TaskGroup

    async def run(self, stop: anyio.Event | None) -> None:
        """Until cancelled, or until ``stop`` is set and everything in flight is finished."""
        unwatch = self._link.watch(self._on_link)
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as service, anyio.create_task_group() as self._tasks:
                service.start_soon(self._keep_alive)
                service.start_soon(self._tick)
                try:
                    await self._serve(stop)
                except GymError as error:
                    # Raised as it is, not in the group that a task group would make of it.
                    failure = error
                    self._tasks.cancel_scope.cancel()
                service.start_soon(self._until_idle, service)
        finally:
            unwatch()
            for delivery in self._in_flight:
                delivery.give_back(0.0)
            self._leave()
            with anyio.move_on_after(CLEANUP_S, shield=True):
                await self._link.settle()
        if failure is not None:
            raise failure

    async def _until_idle(self, service: TaskGroup) -> None:
        while self._credit.busy:
            await self._sleep_until_woken()
        service.cancel_scope.cancel()

    async def _serve(self, stop: anyio.Event | None) -> None:
        async with anyio.create_task_group() as watch:
            if stop is not None:
                watch.start_soon(self._until_stopped, stop, watch)
            while True:
                if self._restore and self._link.up:
                    await self._open()
                await self._sleep_until_woken()

    async def _until_stopped(self, stop: anyio.Event, watch: TaskGroup) -> None:
        await stop.wait()
        watch.cancel_scope.cancel()

    async def _sleep_until_woken(self) -> None:
        self._wake = anyio.Event()
        await self._wake.wait()
