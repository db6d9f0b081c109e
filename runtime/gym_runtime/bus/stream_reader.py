"""Reading a stream in order: an ephemeral consumer that is replaced whenever its order is in doubt.

The consumer numbers its deliveries without gaps. A number out of order, a missed heartbeat, a refused pull or
a broken connection all have the same effect: a new consumer from the record after the last received one. So
nothing is lost and nothing arrives twice. The reader asks for one batch at a time, and for the next one only
when most of the last one has been read.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from typing import Any

import anyio
import msgspec

from gym_runtime.bus.interface import Headers
from gym_runtime.bus.jetstream_answers import Answer, Kept
from gym_runtime.bus.link import Link
from gym_runtime.bus.streams import Streams
from gym_runtime.bus.wire import Stamp, is_completed, status
from gym_runtime.errors import BrokerError
from gym_runtime.timing import EXPIRES_S, HEARTBEAT_S, PATIENCE_S

EPHEMERAL_S = 5.0
"""An ephemeral consumer exists at once, unless its node has failed."""
INACTIVE_S = 60.0
"""After this time without a reader the broker removes the consumer. Longer than a reconnection takes."""
READ_PAUSE_S = 0.2
"""The pause after a fruitless read; it grows with their number."""

BATCH = 256
LOW_WATER = 128
BATCH_BYTES = 4 * 1024 * 1024
# In heartbeats: two may be lost or late.
SILENCE = 2.5
GAPS = 16
"""If more messages than this are deleted while it reads, as by a purge, it reads with a new consumer."""
NS = 10**9


class Reader:
    """The records under one pattern of one stream, from a sequence on. Must be closed."""

    def __init__(self, link: Link, streams: Streams, pattern: str, *, after: int = 0) -> None:
        self._link, self._streams, self._names = link, streams, streams.names
        self._pattern, self._stream = pattern, streams.names.stream(pattern)
        self._last = after
        self._buffer: deque[Kept] = deque()
        self._name = self._inbox = ""
        self._stale, self._drained = True, False
        self._sid = self._consumed = self._pending = self._pull = self._left = self._fruitless = 0
        self._wake = asyncio.Event()
        self._unwatch = link.watch(self._on_link)

    def close(self) -> None:
        """Give up the consumer. Does not wait, so that an abandoned iterator can be closed anywhere."""
        self._unwatch()
        self._drop()

    async def next(self) -> Kept:
        """The next message; waits for it."""
        following = {"expires": int(EXPIRES_S * NS), "idle_heartbeat": int(HEARTBEAT_S * NS)}
        while True:
            if self._stale and not self._buffer:
                await self._open({"deliver_policy": "by_start_sequence", "opt_start_seq": self._last + 1})
            # The next batch is asked for while this one is still being read, so that the reader does not wait
            # for it.
            if self._left == 0 and len(self._buffer) <= LOW_WATER and not self._stale:
                self._ask(following)
            if self._buffer:
                return self._buffer.popleft()
            await self._wait()

    async def newest(self) -> list[Kept]:
        """The newest message of each subject, in stored order; does not follow.

        If a subject's message is replaced during the read, the newer one counts. The broker then reports that
        it has nothing, although messages are pending: it continues after the gap when it is asked again.
        """
        while True:
            self._buffer.clear()
            await self._open({"deliver_policy": "last_per_subject"})
            found: dict[str, Kept] = {}
            gaps = 0
            while self._pending and not self._stale:
                if self._left == 0:
                    self._ask({"no_wait": True})
                await self._wait()
                # Messages are pending and the broker says that it has none: a gap (see above).
                gaps += self._drained
                self._stale |= gaps > GAPS
                self._drained = False
                for kept in self._buffer:
                    # A dict keeps the place of a replaced key; the newer message must move to the end.
                    found.pop(kept.subject, None)
                    found[kept.subject] = kept
                self._buffer.clear()
            if not self._stale:
                return list(found.values())

    async def _open(self, policy: dict[str, Any]) -> None:
        self._drop()
        if self._fruitless:
            # A broker that answers and fails each time would otherwise be asked without pause.
            await anyio.sleep(READ_PAUSE_S * self._fruitless)
        await self._link.wait_up()
        # Reset by the first thing that is heard.
        self._fruitless = min(self._fruitless + 1, 10)
        # From here on the loss of the connection makes it stale again.
        self._stale = False
        self._consumed = self._left = 0
        self._drained = False
        self._inbox = self._link.inbox()
        self._sid = self._link.listen(f"{self._inbox}.*", self._on_message)
        config = {
            "ack_policy": "none",
            "inactive_threshold": int(INACTIVE_S * NS),
            # It is replaced when it is lost, so it need not be written to a disk.
            "mem_storage": True,
            "num_replicas": 1,
            **policy,
        }
        try:
            self._pending = (await self._create(config)).num_pending
        # Also for a cancellation: the next read must not wait on a consumer that does not exist.
        except BaseException:
            self._stale = True
            raise

    async def _create(self, config: dict[str, Any]) -> Answer:
        """Create the consumer under a new name.

        A cluster may place it on a node that has just died or frozen, and keeps it there as long as the same
        name is requested; so after a request without an answer, another name is tried.
        """
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            self._name = secrets.token_hex(8)
            try:
                return await self._streams.consume(self._pattern, self._name, config, patience_s=EPHEMERAL_S)
            except BaseException as error:
                # The request may have been carried out and only its answer be lost.
                self._delete()
                if not isinstance(error, BrokerError) or not error.silent:
                    raise
                if not self._link.up:
                    # As in `_open`: a broker that is away comes back; its silence counts while it is there.
                    await self._link.wait_up()
                    self._stale, give_up_s = False, time.monotonic() + PATIENCE_S
                elif time.monotonic() > give_up_s:
                    raise

    def _drop(self) -> None:
        # First, so that messages still on their way to the old inbox are ignored from here on.
        self._stale = True
        self._link.unlisten(self._sid)
        self._delete()

    def _delete(self) -> None:
        """Ask for it and do not wait; what is not deleted expires."""
        # While disconnected it would be kept and sent much later; by then the consumer has expired.
        if self._name and self._link.up:
            self._link.post(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._name}", b"")
        self._name = ""

    def _ask(self, terms: dict[str, Any]) -> None:
        self._left = BATCH
        self._pull += 1
        # A message larger than the limit would end each pull, and never be delivered.
        max_bytes = max(BATCH_BYTES, self._link.max_payload)
        self._link.post(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}",
            msgspec.json.encode({"batch": BATCH, "max_bytes": max_bytes, **terms}),
            reply=f"{self._inbox}.{self._pull}",
        )

    async def _wait(self) -> None:
        """Return when something was heard; after too long a silence the consumer is stale."""
        self._wake.clear()
        with anyio.move_on_after(SILENCE * HEARTBEAT_S) as scope:
            await self._wake.wait()
        if scope.cancelled_caught:
            self._stale = True

    def _on_link(self, up: bool) -> None:
        if not up:
            self._stale = True
            self._wake.set()

    def _on_message(self, subject: str, reply: str, headers: Headers, payload: bytes) -> None:
        # Also when stale: the waiting reader then sees that it needs a new consumer.
        self._wake.set()
        if self._stale:
            return
        match status(headers):
            case 0:
                stamp = Stamp.of(reply)
                if stamp.consumed != self._consumed + 1:
                    self._stale = True
                    return
                self._consumed = stamp.consumed
                self._pending = stamp.pending
                self._last = stamp.sequence
                self._left = max(0, self._left - 1)
                self._fruitless = 0
                self._buffer.append(Kept(self._names.bare(subject), headers, payload, stamp.sequence))
            case 100:
                # A heartbeat names the last delivery: only this shows that the last message was lost.
                consumed = int(headers.get("Nats-Last-Consumer", self._consumed))
                self._stale = consumed != self._consumed
                self._fruitless = 0
            # The end of a fully delivered pull is reported when the next pull is already under way.
            case 404 | 408 | 409 as code if code != 409 or is_completed(headers):
                if int(subject.rpartition(".")[2]) == self._pull:
                    self._left = 0
                    self._drained |= code != 409
            case _:
                self._stale = True
