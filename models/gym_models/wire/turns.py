"""Callers that wait for something in the order in which they came, such as room at a replica.

No turn is lost: a caller that is cancelled at its turn hands it to the next one, and a caller for which there
is nothing after all keeps its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio

R = TypeVar("R")


class _Turn:
    def __init__(self) -> None:
        self.come = anyio.Event()


class Turns:
    """A queue of callers."""

    def __init__(self) -> None:
        # A dict as an ordered set: the first come is the first to be woken, and removal is cheap.
        self._waiting: dict[_Turn, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, take: Callable[[], R | None]) -> R:
        """Wait until ``take``, which is called at each of this caller's turns, returns something."""
        turn = _Turn()
        self._waiting[turn] = None
        taken = None
        try:
            while True:
                await turn.come.wait()
                taken = take()
                if taken is not None:
                    return taken
                turn.come = anyio.Event()
        finally:
            del self._waiting[turn]
            if taken is None and turn.come.is_set():  # pass the turn on to the next caller
                self.wake(1)

    def wake(self, count: int | None = None) -> None:
        """Wake so many callers, or all."""
        left = len(self._waiting) if count is None else count
        for turn in self._waiting:
            if left <= 0:
                return
            if not turn.come.is_set():
                turn.come.set()
                left -= 1
