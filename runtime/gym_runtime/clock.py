"""The time of day, of which every deadline is a time, and a clock to measure with.

All code reads the time here, so that a simulation can replace it (`gym_testing.virtual_clock`). Code
that waits uses the event loop's time, which such a simulation advances together with these clocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

_source: Callable[[], float] = time.time
_steady: Callable[[], float] = time.monotonic


def now() -> float:
    """Seconds since the epoch."""
    return _source()


def monotonic() -> float:
    """Seconds of a clock that is never set, for the time between two events in one process.

    Only the difference of two values means something. It takes a quarter of the time of `anyio.current_time`.
    """
    return _steady()


@contextmanager
def reading(source: Callable[[], float]) -> Generator[None]:
    """Have both clocks return ``source()`` within the context, in the whole process. Contexts may nest."""
    global _source, _steady
    before, _source, _steady = (_source, _steady), source, source
    try:
        yield
    finally:
        _source, _steady = before
