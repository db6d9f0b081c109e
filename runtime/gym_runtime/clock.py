"""The time of day, and the steady clock by which deadlines and durations are counted.

The time of day may be set at any moment, so it is only stored and shown. A deadline is a time of the steady
clock of one machine; what travels to another machine is the number of seconds that are left.

All code reads the time here, so that a simulation can replace it (`gym_testing.virtual_clock`). Code
that waits uses the event loop's time, which such a simulation advances together with these clocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

_time_of_day: Callable[[], float] = time.time
_steady: Callable[[], float] = time.monotonic


def now() -> float:
    """Seconds since the epoch. Not for deadlines and durations: it may be set, forward and back."""
    return _time_of_day()


def monotonic() -> float:
    """Seconds of a clock that is never set: every deadline is a time of it.

    Only the difference of two values of one machine means something. It takes a quarter of the time of
    `anyio.current_time`.
    """
    return _steady()


@contextmanager
def reading(time_of_day: Callable[[], float], steady: Callable[[], float]) -> Generator[None]:
    """Have `now` and `monotonic` return these within the context, in the whole process. Contexts may nest."""
    global _time_of_day, _steady
    before, _time_of_day, _steady = (_time_of_day, _steady), time_of_day, steady
    try:
        yield
    finally:
        _time_of_day, _steady = before
