"""Ctrl-C and SIGTERM: a run says the same line, with the same status, whenever they come."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import ParamSpec

P = ParamSpec("P")

INTERRUPTED = 130
"""The exit status of a command that Ctrl-C or SIGTERM ended."""
MORE = "run the same command with --resume to make the other rollouts"
RESUME = f"interrupted; {MORE}"


@contextmanager
def terminable() -> Generator[None]:
    """In this context SIGTERM raises KeyboardInterrupt, as Ctrl-C does: what was begun is cleaned up.

    For what runs without an event loop, and only in the main thread, where Python handles signals.
    """
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def resumable(command: Callable[P, int]) -> Callable[P, int]:
    """A command that can be resumed; if it is interrupted while it prepares, it prints how to resume."""

    @wraps(command)
    def call(*args: P.args, **kwargs: P.kwargs) -> int:
        from gym_runtime.errors import leaf

        try:
            with terminable():
                return command(*args, **kwargs)
        except BaseException as error:
            if not isinstance(leaf(error), KeyboardInterrupt):
                raise
            print(RESUME, file=sys.stderr, flush=True)
            return INTERRUPTED

    return call


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
