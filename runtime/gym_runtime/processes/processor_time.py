"""Limits on the processor time of a step within a process: on a busy machine they do not come any earlier.

They stop what runs in the interpreter; what loops in C has to be killed from outside.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

AGAIN_S = 0.5
T = TypeVar("T")


class OutOfTime(BaseException):
    """The processor time for a step is used up. No ``except Exception`` of the library catches it."""


def within(limit_s: float, step: Callable[[], T], otherwise: T) -> T:
    """What a step returns; something else once it has used that much processor time of this process.

    Works in the main thread only, as signals do.
    """
    if limit_s <= 0:
        return otherwise

    def stop(signum: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        try:
            # Again and again: some libraries have places that catch everything.
            signal.setitimer(signal.ITIMER_VIRTUAL, limit_s, AGAIN_S)
            return step()
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except OutOfTime:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return otherwise
    finally:
        signal.signal(signal.SIGVTALRM, before)
