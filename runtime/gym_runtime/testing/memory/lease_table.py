"""Leases, and those who watch them.

Each watcher expires leases by its own clock, as a real one must whose connection may be dead; the table
itself only notes until when each is alive.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncGenerator

import anyio
import msgspec

from gym_runtime.bus.interface import Lease
from gym_runtime.testing.memory.line import Line
from gym_runtime.testing.memory.patterns import compiled

MAX_WAITING = 10_000
"""Changes that a slow watcher has not taken; beyond, a lease's older changes give way to its newest."""


class Held(msgspec.Struct, frozen=True):
    """A lease as it is stored; ``until_s`` is in the event loop's time."""

    payload: bytes
    until_s: float


class LeaseTable:
    """All leases by name."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._watches: dict[LeaseWatch, None] = {}

    def renew(self, name: str, payload: bytes, ttl_s: float) -> None:
        """Create a lease or prolong it."""
        self._change(name, Held(payload, anyio.current_time() + ttl_s))

    def end(self, name: str) -> None:
        """End a lease; not an error if there is none."""
        self._change(name, None)

    def alive(self, pattern: str) -> dict[str, Held]:
        """The leases of a pattern that have not run out."""
        now_s = anyio.current_time()
        self._held = {name: held for name, held in self._held.items() if held.until_s > now_s}
        matches = compiled(pattern).fullmatch
        return {name: held for name, held in self._held.items() if matches(name)}

    def _change(self, name: str, held: Held | None) -> None:
        if held is None:
            self._held.pop(name, None)
        else:
            self._held[name] = held
        for watch in list(self._watches):
            if watch.matches(name):
                watch.hear(name, held)

    def join(self, watch: LeaseWatch) -> None:
        """Tell a watcher of every change from now on."""
        self._watches[watch] = None

    def leave(self, watch: LeaseWatch) -> None:
        self._watches.pop(watch, None)


class LeaseWatch:
    """One iteration over the leases of a pattern."""

    def __init__(self, table: LeaseTable, line: Line, pattern: str) -> None:
        self.matches = compiled(pattern).fullmatch
        self._table = table
        self._line = line
        self._pattern = pattern
        self._until_s: dict[str, float] = {}
        self._waiting: deque[Lease] = deque()
        self._stale = True
        self._wake = anyio.Event()

    async def changes(self) -> AsyncGenerator[Lease]:
        """Those alive, then every change."""
        unwatch = self._line.watch(self._on_line)
        self._table.join(self)
        try:
            while True:
                self._line.check()
                if self._stale and self._line.open:
                    self._look()
                while self._waiting:
                    yield self._waiting.popleft()
                now_s = anyio.current_time()
                for name in [name for name, until_s in self._until_s.items() if until_s <= now_s]:
                    self._take(name, None)
                if not self._waiting:
                    self._wake = anyio.Event()
                    with anyio.move_on_after(min(self._until_s.values(), default=math.inf) - now_s):
                        await self._wake.wait()
        finally:
            self._table.leave(self)
            unwatch()

    def hear(self, name: str, held: Held | None) -> None:
        """The table tells of a change."""
        self._line.arrive(lambda: self._take(name, held))

    def _on_line(self, up: bool) -> None:
        # What changed while the line was cut was not heard.
        self._stale = self._stale or up
        self._wake.set()

    def _look(self) -> None:
        self._stale = False
        alive = self._table.alive(self._pattern)
        for name in [name for name in self._until_s if name not in alive]:
            self._take(name, None)
        for name, held in alive.items():
            self._take(name, held)

    def _take(self, name: str, held: Held | None) -> None:
        if held is not None:
            self._until_s[name] = held.until_s
        elif self._until_s.pop(name, None) is None:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._waiting = deque({lease.name: lease for lease in self._waiting}.values())
        self._waiting.append(Lease(name, None if held is None else held.payload))
        self._wake.set()
