"""Rollouts that may have ended their agent workers take turns.

When an agent worker is lost, all of its rollouts are delivered again, and one of them may end the next worker
too. So each counts the workers that it lost in a row without a new turn between (`rollout.account`). From
the second on at most `GROUP` such rollouts are at work at once at one worker, then one after the other: the
one that ends its worker gathers losses, and the others store a turn, which clears them, and go on beside the
rest. A rollout that has lost `MAX_LOSSES` workers has failed.
"""

from __future__ import annotations

import anyio

GROUP = 16
GROUP_AT = 1
ALONE_AT = 2
MAX_LOSSES = 4


class Turn:
    """The place of one rollout among the suspects of a worker; given up once, with a turn or at its end."""

    def __init__(self, places: anyio.Semaphore | None) -> None:
        self._places = places
        self._held = False

    @property
    def limited(self) -> bool:
        """Whether it has to be waited for."""
        return self._places is not None

    async def take(self) -> None:
        """Wait for it."""
        if self._places is not None:
            await self._places.acquire()
            self._held = True

    def give_up(self) -> None:
        """Let the next one work; not an error if that was done before."""
        if self._held and self._places is not None:
            self._held = False
            self._places.release()


class Turns:
    """The places at one agent worker."""

    def __init__(self) -> None:
        self._group = anyio.Semaphore(GROUP)
        self._alone = anyio.Semaphore(1)

    def turn(self, losses: int) -> Turn:
        """Where a rollout that has lost so many workers in a row waits."""
        if losses >= ALONE_AT:
            return Turn(self._alone)
        return Turn(self._group if losses >= GROUP_AT else None)
