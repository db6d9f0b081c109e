"""The time of day. Every deadline is a time of this clock.

All code reads the time here, so that a simulation can replace it (`gym_runtime.testing.virtual_clock`). Code
that waits uses the event loop's time, which such a simulation advances together with this clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

_source: Callable[[], float] = time.time


def now() -> float:
    """Seconds since the epoch."""
    return _source()


@contextmanager
def reading(source: Callable[[], float]) -> Generator[None]:
    """Have `now` return ``source()`` within the context, in the whole process. Contexts may be nested."""
    global _source
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before
