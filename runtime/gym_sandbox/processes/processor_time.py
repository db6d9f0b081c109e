"""Limits on the processor time of a step within a process, so that a busy machine does not shorten them.

They stop Python code; a loop in C must be killed from outside.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import TypeVar

LIMIT_SIGNAL_S = 0.5
"""How often the signal of a reached limit is repeated: some libraries catch every exception."""


T = TypeVar("T")


class OutOfTime(BaseException):
    """The processor time of a step is used up. A library's ``except Exception`` does not catch it."""


def within(limit_s: float, step: Callable[[], T], otherwise: T) -> T:
    """The result of ``step``, or ``otherwise`` if it used more processor time of this process.

    Works in the main thread only, because Python handles signals there.
    """
    if limit_s <= 0:
        return otherwise
    _stop_at_signals()
    try:
        try:
            # The signal is repeated every `LIMIT_SIGNAL_S`, because some libraries catch every exception.
            signal.setitimer(signal.ITIMER_VIRTUAL, limit_s, LIMIT_SIGNAL_S)
            return step()
        finally:
            # The signal may come in this very line; then the handler below stops the timer.
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except OutOfTime:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return otherwise


@cache  # once, and never taken back: without a timer no signal comes
def _stop_at_signals() -> None:
    def stop(signum: int, frame: FrameType | None) -> None:
        raise OutOfTime

    signal.signal(signal.SIGVTALRM, stop)
