"""What one connection has still to write: commands, messages and pings, in order and bounded.

Sending is an append to a list, which is written once per turn of the event loop. While there is no socket, or
its buffer is full, the list grows; `Outgoing.room` waits while it is above its limit. What is large is better
not even encoded before it can be written: `Outgoing.ease` waits until little is left to write.
"""

from __future__ import annotations

import asyncio
from collections import deque

from gym_runtime.bus.protocol import PING
from gym_runtime.bus.socket import Socket

COPIED_BYTES = 128 * 1024
"""More is not joined before it is written: to copy it takes longer than to hand over its parts."""


CROWDED_BYTES = 1 * 1024 * 1024


class Outgoing:
    """The list, and the pings that were written and not answered yet."""

    def __init__(self, limit_bytes: int) -> None:
        self.waiting_bytes = 0
        self.pings_due = 0
        self.pongs: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._limit_bytes = limit_bytes
        self._waiting: list[bytes] = []
        self._socket: Socket | None = None
        self._kicked = False
        self._room: list[asyncio.Future[None]] = []
        self._crowd: deque[asyncio.Future[None]] = deque()

    @property
    def full(self) -> bool:
        return self.waiting_bytes > self._limit_bytes

    @property
    def crowded(self) -> bool:
        """Whether what is sent now has to wait; also while the socket is full of what was written."""
        socket = self._socket
        return socket is not None and (socket.paused or self.waiting_bytes > CROWDED_BYTES)

    def attach(self, socket: Socket) -> None:
        """There is a socket; what waits is written."""
        self._socket = socket
        self.write()

    def detach(self) -> None:
        """The socket is gone. What waits is kept, except pings: their answers would be taken for others'."""
        self._socket = None
        self._next_of_crowd()
        self.pings_due = 0
        pongs, self.pongs = self.pongs, deque()
        for pong in pongs:
            _settle(pong)

    def add(self, parts: tuple[bytes, ...], size_bytes: int) -> None:
        """Write this after everything before it."""
        self._waiting += parts
        self.waiting_bytes += size_bytes
        if not self._kicked:
            self._kicked = True
            # One write for all that this turn of the loop sends: a system call for each would cost more than
            # the rest.
            self._loop.call_soon(self.write)

    def kick(self) -> None:
        """The socket takes bytes again."""
        if (self._waiting or self.pings_due or self._crowd) and not self._kicked:
            self._kicked = True
            self._loop.call_soon(self.write)

    def ping(self) -> asyncio.Future[None]:
        """Send a ping after everything before it; the future is done when it is answered, or will not be."""
        pong: asyncio.Future[None] = self._loop.create_future()
        self.pongs.append(pong)
        self.pings_due += 1
        self.kick()
        return pong

    def ponged(self) -> None:
        """The broker answered the oldest ping."""
        if self.pongs:
            _settle(self.pongs.popleft())

    def write(self) -> None:
        """Write what this turn of the loop sent; when the socket is full, `kick` comes again later."""
        self._kicked = False
        if self._socket is None or self._socket.paused:
            return
        waiting, self._waiting = self._waiting, []
        # Pings go last, because each must come after all that was sent before it.
        waiting.append(PING * self.pings_due)
        large = self.waiting_bytes > COPIED_BYTES
        self.waiting_bytes = self.pings_due = 0
        if large:
            self._socket.write_parts(waiting)
        else:
            self._socket.write(b"".join(waiting))
        self.wake()
        self._next_of_crowd()

    async def room(self) -> None:
        """Return when there was room for a moment; it may be taken again by then. `wake` ends it too."""
        waiter = self._loop.create_future()
        self._room.append(waiter)
        await waiter

    async def ease(self) -> None:
        """Return when it was not crowded for a moment, in the order of the calls."""
        waiter = self._loop.create_future()
        self._crowd.append(waiter)
        try:
            await waiter
        finally:
            # One after the other: what this one sends may crowd it again. The call is made soon, when that is
            # known.
            if not waiter.cancelled():
                self._loop.call_soon(self._next_of_crowd)

    def _next_of_crowd(self) -> None:
        while self._crowd and not self.crowded:
            waiter = self._crowd.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake(self) -> None:
        """Let everything look that waits for room."""
        waiters, self._room = self._room, []
        for waiter in waiters:
            _settle(waiter)


def _settle(future: asyncio.Future[None]) -> None:
    # A waiter that was cancelled stays in the list until here.
    if not future.done():
        future.set_result(None)
