"""Rollouts that may have ended their agent workers take turns.

When an agent worker is lost, all of its rollouts are delivered again, and one of them may end the next worker
too. So each rollout counts the workers in a row that it lost without a new turn between them
(`rollout.account`). After `GROUP_AT` losses, at most `GROUP` such rollouts run at once at one worker; after
`ALONE_AT`, one at a time. The rollout that ends its workers gathers losses; the others store a turn, which
clears their losses, and continue beside the rest. A rollout that has lost `MAX_LOSSES` workers has failed.
"""

from __future__ import annotations

import anyio

GROUP = 16
GROUP_AT = 1
ALONE_AT = 2
MAX_LOSSES = 4


class SuspectPlace:
    """The place of one rollout among the suspects of a worker, until it stores a turn or ends."""

    def __init__(self, places: anyio.Semaphore | None) -> None:
        self._places = places
        self._held = False

    @property
    def limited(self) -> bool:
        """Whether the rollout must wait for its place."""
        return self._places is not None

    async def take(self) -> None:
        """Wait for the place."""
        if self._places is not None:
            await self._places.acquire()
            self._held = True

    def give_up(self) -> None:
        """Release the place for the next rollout. May be called again."""
        if self._held and self._places is not None:
            self._held = False
            self._places.release()


class SuspectPlaces:
    """The places at one agent worker."""

    def __init__(self) -> None:
        self._group = anyio.Semaphore(GROUP)
        self._alone = anyio.Semaphore(1)

    def turn(self, losses: int) -> SuspectPlace:
        """The place in which a rollout waits that has lost this many workers in a row."""
        if losses >= ALONE_AT:
            return SuspectPlace(self._alone)
        return SuspectPlace(self._group if losses >= GROUP_AT else None)
