"""Ctrl-C and SIGTERM: a run says the same line, with the same status, whenever they come."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""The exit status of a command that Ctrl-C or SIGTERM ended."""
MORE = "run the same command with --resume to run the other rollouts"
RESUME = f"interrupted; {MORE}"
AGAIN_S = 0.02


@contextmanager
def terminable() -> Generator[None]:
    """In this context SIGTERM raises KeyboardInterrupt, as Ctrl-C does, so that clean-up runs.

    Python drops an exception that a callback of the interpreter raises, such as that of an import's lock, and
    an interrupt may come just then. It is raised once more, a moment later.

    For what runs without an event loop, and only in the main thread, where Python handles signals.
    """
    hook = sys.unraisablehook

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            hook(unraisable)

    with _handled(_interrupt, signal.SIGTERM, signal.SIGALRM):
        sys.unraisablehook = dropped
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.unraisablehook = hook


@contextmanager
def held_back() -> Generator[list[int]]:
    """In this context SIGINT and SIGTERM are noted, and raise nothing, until an event loop handles them.

    A loop that an exception ends while it starts can be neither run again nor closed.
    """
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)

    with _handled(note, signal.SIGINT, signal.SIGTERM):
        yield noted


@contextmanager
def sigterm_as_ctrl_c() -> Generator[None]:
    """In this context SIGTERM cancels what an event loop runs, as Ctrl-C does."""
    with _handled(lambda number, frame: signal.raise_signal(signal.SIGINT), signal.SIGTERM):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], *numbers: int) -> Generator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def was_interrupt(error: BaseException | None) -> bool:
    """Whether an interrupt led to an error.

    Up to Python 3.11 the making of a class raises a RuntimeError from what a ``__set_name__`` raised: an
    interrupt, if it comes while a module is imported.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
