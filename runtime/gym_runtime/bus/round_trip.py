"""How far the broker is: the time that pings take, without the delay of this process.

A link that is slow, loses packets or is full delays every ping. So does a busy event loop, on sending and on
receiving: the lateness of its timers while a ping is under way is subtracted twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from statistics import median

from gym_runtime.timing import SLOW_LINK_S

LOOP_CHECKED_S = 0.05
"""How often it is seen how late the event loop is, while a ping is under way."""

KEPT = 3
"""The median of so many pings counts: one that was delayed by chance changes nothing."""


class RoundTrips:
    """The pings of one connection.

    Args:
        changed: called when the link becomes slow, and when it is no longer.

    Attributes:
        seconds: the median; 0 until there are `KEPT` pings.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.seconds = 0.0
        self._changed = changed
        self._kept: deque[float] = deque(maxlen=KEPT)

    @property
    def slow(self) -> bool:
        return self.seconds > SLOW_LINK_S

    def measure(self, pong: asyncio.Future[None], counts: Callable[[], bool]) -> None:
        """Measure the ping that was just sent. ``counts`` says at its end whether it was answered."""
        loop = pong.get_loop()
        began_s = time.monotonic()
        due_s, late_s = began_s + LOOP_CHECKED_S, 0.0

        def tick() -> None:
            nonlocal due_s, late_s, timer
            late_s = max(late_s, time.monotonic() - due_s)
            due_s = time.monotonic() + LOOP_CHECKED_S
            timer = loop.call_later(LOOP_CHECKED_S, tick)

        def end(_: asyncio.Future[None]) -> None:
            timer.cancel()
            now_s = time.monotonic()
            # The future also ends when the connection breaks; that is no measurement.
            if counts():
                self.add(max(0.0, now_s - began_s - 2 * max(late_s, now_s - due_s)))

        timer = loop.call_later(LOOP_CHECKED_S, tick)
        pong.add_done_callback(end)

    def add(self, seconds: float) -> None:
        """One more ping took this long."""
        self._kept.append(seconds)
        if len(self._kept) == KEPT:
            # The right side is evaluated first, so `before` is what it was.
            before, self.seconds = self.slow, median(self._kept)
            if self.slow != before:
                self._changed()
