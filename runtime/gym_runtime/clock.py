"""The time of day, by which every deadline is counted.

One place, so that a simulation can put its own clock there (`gym_runtime.testing.clock`). Code that waits
uses the event loop's time, which such a simulation advances together with this one.
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
    """Within the context `now` is what ``source`` says, for the whole process. May be nested."""
    global _source
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before
