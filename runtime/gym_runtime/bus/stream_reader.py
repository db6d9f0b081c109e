"""Reading a stream in order: an ephemeral consumer that is replaced whenever its order is in doubt.

The consumer numbers its deliveries without gaps. A number out of order, a missed heartbeat, a refused pull or
a broken connection all have the same effect: a new consumer from the record after the last received one. So
nothing is lost and nothing arrives twice. The reader asks for one batch at a time, and for the next one only
when most of the last one has been read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import anyio
import msgspec

from gym_runtime.bus import consumers
from gym_runtime.bus.headers import status
from gym_runtime.bus.interface import Headers
from gym_runtime.bus.jetstream import Kept, Stamp, is_completed
from gym_runtime.bus.link import Link
from gym_runtime.bus.streams import Streams
from gym_runtime.timing import EXPIRES_S, HEARTBEAT_S

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
DISTURBED = 5
"""After so many of these, the result so far is taken as complete."""
NS = 10**9


class Reader:
    """The records under one pattern of one stream, from a sequence on. Must be closed."""

    def __init__(
        self, link: Link, streams: Streams, pattern: str, *, after: int = 0, heartbeat_s: float = HEARTBEAT_S
    ) -> None:
        self._link = link
        self._streams = streams
        self._pattern = streams.names.pattern(pattern)
        self._stream = streams.names.stream(pattern)
        self._last = after
        self._heartbeat_s = heartbeat_s
        self._buffer: deque[Kept] = deque()
        self._name = ""
        self._inbox = ""
        self._sid = 0
        self._stale = True
        self._consumed = 0
        self._pending = 0
        self._pull = 0
        self._left = 0
        self._drained = False
        self._fruitless = 0
        self.opened_s = 0.0
        """When the present consumer was created, by the broker's clock."""
        self._wake = asyncio.Event()
        self._unwatch = link.watch(self._on_link)

    def close(self) -> None:
        """Give up the consumer. Does not wait, so that an abandoned iterator can be closed anywhere."""
        self._unwatch()
        self._drop()

    async def next(self) -> Kept:
        """The next message; waits for it."""
        while not self._buffer:
            if self._stale:
                await self._open({"deliver_policy": "by_start_sequence", "opt_start_seq": self._last + 1})
            if self._left == 0:
                heartbeat = int(self._heartbeat_s * NS)
                self._ask({"expires": int(EXPIRES_S * NS), "idle_heartbeat": heartbeat})
            await self._wait()
        kept = self._buffer.popleft()
        # The next batch is asked for while this one is still being read, so that the reader does not wait for
        # it.
        if self._left == 0 and len(self._buffer) == LOW_WATER and not self._stale:
            heartbeat = int(self._heartbeat_s * NS)
            self._ask({"expires": int(EXPIRES_S * NS), "idle_heartbeat": heartbeat})
        return kept

    async def newest(self) -> list[Kept]:
        """The newest message of each subject, in stored order; does not follow.

        If a subject's message is replaced during the read, the newer one counts. The broker then reports that
        it has nothing, although messages are pending: it continues after the gap when it is asked again.
        """
        disturbed = 0
        while True:
            self._buffer.clear()
            await self._open({"deliver_policy": "last_per_subject"})
            found: dict[str, Kept] = {}
            gaps = 0
            while self._pending and not self._stale and gaps <= GAPS:
                if self._left == 0:
                    self._ask({"no_wait": True})
                await self._wait()
                # Messages are pending and the broker says that it has none: a gap (see above).
                gaps += self._drained
                self._drained = False
                for kept in self._buffer:
                    # A dict keeps the place of a replaced key; the newer message must move to the end.
                    found.pop(kept.subject, None)
                    found[kept.subject] = kept
                self._buffer.clear()
            disturbed += gaps > GAPS
            if not self._stale and (gaps <= GAPS or disturbed == DISTURBED):
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
            "filter_subject": self._pattern,
            "ack_policy": "none",
            "inactive_threshold": int(INACTIVE_S * NS),
            # It is replaced when it is lost, so it need not be written to a disk.
            "mem_storage": True,
            **policy,
        }
        try:
            consumer = await consumers.create_ephemeral(self._link, self._streams, self._stream, config)
        # Also for a cancellation: the next read must not wait on a consumer that does not exist.
        except BaseException:
            self._stale = True
            raise
        self._name = consumer.name
        self._pending = consumer.num_pending
        self.opened_s = consumer.ts.timestamp() if consumer.ts else 0.0

    def _drop(self) -> None:
        # First, so that messages still on their way to the old inbox are ignored from here on.
        self._stale = True
        self._link.unlisten(self._sid)
        if self._name:
            consumers.delete(self._link, self._stream, self._name)
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
        with anyio.move_on_after(SILENCE * self._heartbeat_s) as scope:
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
                self._buffer.append(Kept(subject, headers, payload, stamp.sequence, stamp.stored_s))
            case 100:
                # A heartbeat names the last delivery: only this shows that the last message was lost.
                consumed = int(headers.get("Nats-Last-Consumer", self._consumed))
                self._stale = consumed != self._consumed
                self._fruitless = 0
            case 404 | 408:
                if self._is_current(subject):
                    self._left = 0
                    self._drained = True
            case 409 if is_completed(headers):
                if self._is_current(subject):
                    self._left = 0
            case _:
                self._stale = True

    def _is_current(self, subject: str) -> bool:
        # The end of a fully delivered pull is reported when the next pull is already under way.
        return int(subject.rpartition(".")[2]) == self._pull
