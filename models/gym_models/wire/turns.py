"""Callers that wait for something in the order in which they came, such as room at a replica.

Nobody's turn is lost: a caller who leaves when it is told hands its turn to the next one, and one for whom
there is nothing after all keeps its place.
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
        self._waiting: dict[_Turn, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, take: Callable[[], R | None]) -> R:
        """Wait until ``take``, which is called at each of this caller's turns, gives something."""
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
            if taken is None and turn.come.is_set():  # somebody else's turn, then
                self.wake(1)

    def wake(self, count: int | None = None) -> None:
        """Tell so many callers, or all, that it is their turn."""
        left = len(self._waiting) if count is None else count
        for turn in self._waiting:
            if left <= 0:
                return
            if not turn.come.is_set():
                turn.come.set()
                left -= 1
