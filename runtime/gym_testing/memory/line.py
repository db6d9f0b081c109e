"""A connection of the in-memory bus: outgoing and incoming messages, and what stops both.

A line is up, frozen, cut or closed. While it is frozen, no message passes and none is lost: both directions
continue in order after the thaw. When it is cut, incoming messages are lost, outgoing ones wait (up to
`BUFFER_BYTES`, then their senders wait), and the broker knows at once. A closed line stays closed.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import deque
from collections.abc import Callable

import anyio
import anyio.lowlevel
import structlog
from gym_runtime import clock
from gym_runtime.errors import BrokerError, ConnectionLost

log = structlog.get_logger(__name__)

Action = Callable[[], object]
BUFFER_BYTES = 32 * 1024 * 1024
CLOSED = "the connection to the broker is closed"


class Line:
    """One connection, as its owner and the broker see it. Made inside an event loop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True
        self.frozen = False
        self.closed = False
        self.mended_s = -math.inf
        self.cuts = 0
        """How often it was cut. Something on its way in that left before the last cut is lost."""
        self._loop = asyncio.get_running_loop()
        # Subscribers run in the context in which the connection was made, not in their senders'.
        self._context = contextvars.copy_context()
        self._going: deque[tuple[int, Action]] = deque()
        self._going_bytes = 0
        self._arrived: deque[Action] = deque()
        self._scheduled = False
        self._changed = anyio.Event()
        self._watchers: list[Callable[[bool], None]] = []

    @property
    def open(self) -> bool:
        """Whether something can pass now."""
        return self.up and not self.frozen

    def watch(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        """Call ``changed`` with False at a cut and at the end, with True when the line is mended.

        Returns a function that ends the watch.
        """
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    # -- out ------------------------------------------------------------------------------------------

    async def passable(self, patience_s: float | None = None) -> None:
        """Wait until something can pass.

        Raises:
            ConnectionLost: The line is closed.
            BrokerError: It took longer than ``patience_s``.
        """
        await anyio.lowlevel.checkpoint()
        if self.open:
            return
        with anyio.move_on_after(patience_s) as scope:
            while not self.open and not self.closed:
                await self._changed.wait()
        if scope.cancelled_caught:
            raise BrokerError(f"the broker answered nothing within {patience_s:.0f} s")
        self.check()

    async def room(self) -> None:
        """Wait while the outgoing buffer is full.

        Raises:
            ConnectionLost: The line is closed.
        """
        await anyio.lowlevel.checkpoint()
        while self._going_bytes > BUFFER_BYTES and not self.closed:
            await self._changed.wait()
        self.check()

    def check(self) -> None:
        """
        Raises:
            ConnectionLost: The line is closed.
        """
        if self.closed:
            raise ConnectionLost(CLOSED)

    def send(self, action: Action, size_bytes: int = 0) -> None:
        """Do something at the broker: now, or when the line is open again."""
        if self.closed:
            return
        if self.open and not self._going:
            action()
        else:
            self._going.append((size_bytes, action))
            self._going_bytes += size_bytes

    # -- in -------------------------------------------------------------------------------------------

    def arrive(self, action: Action, cuts: int | None = None) -> None:
        """Run an action from the broker soon, in order; drop it if the line was cut since it was sent.

        ``cuts`` is the value of `cuts` when it was sent; None means now.
        """
        if not self.up or (cuts is not None and cuts != self.cuts):
            return
        self._arrived.append(action)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self.frozen:
            self._scheduled = True
            self._loop.call_soon(self._take, context=self._context)

    def _take(self) -> None:
        self._scheduled = False
        while self._arrived and self.open:
            action = self._arrived.popleft()
            try:
                action()
            except Exception:
                # A subscriber's bug must not stop delivery to the others.
                log.exception("receive failed", connection=self.name)

    # -- faults ---------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Hold everything, as if the process were stopped."""
        self.frozen = True

    def thaw(self) -> None:
        """Go on after `freeze`, with what was held."""
        if self.frozen:
            self.frozen = False
            self._flush()
            self._schedule()

    def cut(self) -> None:
        """Break the connection, until `mend`."""
        if self.up:
            self.up = False
            self.mended_s = math.inf
            self.cuts += 1
            self._arrived.clear()
            self._tell(up=False)

    def mend(self) -> None:
        """Connect again after `cut`."""
        if not self.up and not self.closed:
            self.up = True
            self.mended_s = clock.monotonic()
            self._tell(up=True)
            self._flush()

    def close(self) -> None:
        """Close the line; messages that wait to go out are sent if the line is open."""
        if not self.closed:
            self._flush()
            self.closed = True
            self._going.clear()
            self._going_bytes = 0
            if self.up:
                self.cut()
            else:
                self._tell(up=False)
            self._changed.set()

    def _tell(self, *, up: bool) -> None:
        for changed in list(self._watchers):
            changed(up)

    def _flush(self) -> None:
        if not self.open:
            return
        while self._going:
            size_bytes, action = self._going.popleft()
            self._going_bytes -= size_bytes
            action()
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
