"""Leases: small records that vanish unless they are renewed.

A renewal is stored, for those who look later, with a time to live at the broker; and it is a message, for
those who watch. Both carry the exact time to live in a header: the broker counts in whole seconds, and a
watcher must also notice when the broker or the lease's owner is frozen. So each watcher expires leases by
its own clock, and an `end` is a renewal for zero seconds.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator

import anyio
import structlog

from gym_runtime.bus.interface import Lease
from gym_runtime.bus.link import Link
from gym_runtime.bus.reader import Reader
from gym_runtime.bus.streams import Streams
from gym_runtime.bus.wire import decode_headers
from gym_runtime.errors import ConnectionLost, TransportError

log = structlog.get_logger(__name__)

TTL = "Gym-Lease-TTL"
LOOK_S = 5.0
LOOK_AGAIN_S = 0.5
SETTLE_S = 0.5
MAX_WAITING = 10_000
"""Changes that a slow watcher has not taken; beyond, a lease's older changes give way to its newest."""


def lease_headers(ttl_s: float) -> dict[str, str]:
    """The headers of a renewal; 0 ends the lease."""
    return {TTL: f"{ttl_s:.3f}", "Nats-TTL": str(max(1, math.ceil(ttl_s)))}


class LeaseWatch:
    """One iteration over the leases of a pattern; without ``stored`` over what is heard of them."""

    def __init__(self, link: Link, streams: Streams, pattern: str, *, stored: bool = True) -> None:
        self._link = link
        self._streams = streams
        self._pattern = f"lease.{pattern}"
        self._expires_s: dict[str, float] = {}
        self._waiting: deque[Lease] = deque()
        self._wake = asyncio.Event()
        self._stored = stored
        self._snapshot = stored
        self._heard: set[str] = set()
        self._sid = link.listen(streams.names.pattern(self._pattern), self._on_message)
        self._unwatch = link.watch(self._on_link)

    def close(self) -> None:
        self._unwatch()
        self._link.unlisten(self._sid)

    async def changes(self) -> AsyncGenerator[Lease]:
        """Those alive, then every change.

        Raises:
            ConnectionLost: The bus is closed.
        """
        while True:
            if self._link.closed:
                raise ConnectionLost("the connection to the broker is closed")
            if self._snapshot:
                await self._look()
            while self._waiting:
                yield self._waiting.popleft()
            if self._overdue():
                # If it was ourselves who were frozen, the renewals wait in the socket.
                with anyio.move_on_after(SETTLE_S):
                    await self._link.settle()
                for name in self._overdue():
                    self._apply(name, b"", 0.0)
            if not self._waiting and not self._snapshot:
                next_s = min(self._expires_s.values(), default=math.inf)
                self._wake.clear()
                with anyio.move_on_after(next_s - time.monotonic()):
                    await self._wake.wait()

    async def now(self) -> list[Lease]:
        """Those alive at this moment.

        Raises:
            ConnectionLost: The bus is closed.
        """
        while self._snapshot:
            if self._link.closed:
                raise ConnectionLost("the connection to the broker is closed")
            await self._look()
        return [lease for lease in self._waiting if lease.payload is not None]

    def _overdue(self) -> list[str]:
        now_s = time.monotonic()
        return [name for name, expires_s in self._expires_s.items() if expires_s <= now_s]

    async def _look(self) -> None:
        """Read what is stored. Gives up soon, to try again: meanwhile leases must expire."""
        reader = Reader(self._link, self._streams, self._pattern)
        try:
            with anyio.fail_after(LOOK_S):
                # A renewal that was routed before this subscription began may not be stored yet. It is,
                # once a later message is.
                barrier = self._streams.names.subject("lease.barrier")
                await self._streams.store(barrier, b"", lease_headers(0.0))
                stored = await reader.newest()
        except (TimeoutError, TransportError) as error:
            log.warning("leases not read", pattern=self._pattern, error=repr(error))
            await anyio.sleep(LOOK_AGAIN_S)
            return
        finally:
            reader.close()
        self._snapshot = False
        for kept in stored:
            # What was heard since the subscription began is at least as new.
            if self._name(kept.subject) not in self._heard:
                age_s = max(0.0, reader.opened_s - kept.stored_s)
                self._take(kept.subject, kept.header, kept.payload, age_s)

    def _on_link(self, up: bool) -> None:
        if up:
            self._snapshot = self._stored
        else:
            # What changes from now on is not heard.
            self._heard.clear()
        self._wake.set()

    def _on_message(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        self._heard.add(self._name(subject))
        self._take(subject, header, payload)

    def _name(self, subject: bytes) -> str:
        return self._streams.names.bare(subject).partition(".")[2]

    def _take(self, subject: bytes, header: bytes, payload: bytes, age_s: float = 0.0) -> None:
        ttl_s = decode_headers(header).get(TTL)
        if ttl_s is not None:
            self._apply(self._name(subject), payload, float(ttl_s) - age_s)

    def _apply(self, name: str, payload: bytes, ttl_s: float) -> None:
        if ttl_s > 0:
            self._expires_s[name] = time.monotonic() + ttl_s
        elif self._expires_s.pop(name, None) is None:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._waiting = deque({lease.name: lease for lease in self._waiting}.values())
        self._waiting.append(Lease(name, payload if ttl_s > 0 else None))
        self._wake.set()
