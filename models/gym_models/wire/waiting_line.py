"""Callers that wait for something in the order in which they came, such as room at a replica.

No place is lost: a caller that is cancelled when it was woken wakes the next one, and a caller for which
there is nothing after all keeps its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio

R = TypeVar("R")


class _Place:
    def __init__(self) -> None:
        self.woken = anyio.Event()


class WaitingLine:
    """A line of callers."""

    def __init__(self) -> None:
        # A dict as an ordered set: the first to come is the first to be woken, and removal is cheap.
        self._places: dict[_Place, None] = {}

    def __len__(self) -> int:
        return len(self._places)

    async def wait(self, take: Callable[[], R | None]) -> R:
        """Wait until ``take``, which is called each time this caller is woken, returns something."""
        place = _Place()
        self._places[place] = None
        taken = None
        try:
            while True:
                await place.woken.wait()
                taken = take()
                if taken is not None:
                    return taken
                place.woken = anyio.Event()
        finally:
            del self._places[place]
            if taken is None and place.woken.is_set():
                self.wake(1)

    def wake(self, count: int | None = None) -> None:
        """Wake so many callers, or all."""
        left = len(self._places) if count is None else count
        for place in self._places:
            if left <= 0:
                return
            if not place.woken.is_set():
                place.woken.set()
                left -= 1
