"""Rollouts that may have ended their agent workers take turns.

When an agent worker is lost, all of its rollouts are delivered again, and one of them may end the next worker
too. So each rollout counts the workers in a row that it lost without a new turn between them
(`rollout.account`), and has a place at its worker until it stores a turn or ends:

====== ==================================================================================
losses when the rollout begins
====== ==================================================================================
0      at once
1      when fewer than `GROUP` such rollouts have a place
2      when no rollout has a place; until it gives its own up, no other one begins
3      as with 2, if the last worker was ended from outside, as a spot instance is; never, if it
       crashed: no other rollout there was new, so this one has failed
6      never: also what ends its worker by too much memory looks like a kill from outside
====== ==================================================================================

A supervisor knows whether a worker crashed, and the worker that it starts in that one's place says so
(`Heartbeat.crashed`).

The rollout that ends its workers gathers losses; the others store a turn, which clears their losses, up to
`rollout.account.CLEARED_AT_MOST` times. From then on a rollout keeps its place to its end.
"""

from __future__ import annotations

import anyio

GROUP = 64
GROUP_AT = 1
ALONE_AT = 2
MAX_LOSSES = 3
MAX_KILLED = 6


class SuspectPlace:
    """The place of one rollout at its worker, until it stores a turn or ends; taken at once if it is free."""

    def __init__(self, places: SuspectPlaces, losses: int) -> None:
        self._places = places
        self._losses = losses
        self._held = places.admit(losses)

    @property
    def limited(self) -> bool:
        """Whether the rollout must wait for its place."""
        return not self._held

    async def take(self) -> None:
        """Wait for the place."""
        if not self._held:
            await self._places.wait(self._losses)
            self._held = True

    def give_up(self) -> None:
        """Release the place. May be called again."""
        if self._held:
            self._held = False
            self._places.leave(self._losses)


class SuspectPlaces:
    """The places at one agent worker."""

    def __init__(self) -> None:
        self._new = 0
        self._group = 0
        self._alone = False
        self._alone_waiting = 0
        self._freed = anyio.Event()

    def turn(self, losses: int) -> SuspectPlace:
        """The place for a rollout that has lost this many workers in a row."""
        return SuspectPlace(self, losses)

    def admit(self, losses: int) -> bool:
        """Take a place if there is one."""
        if losses >= ALONE_AT:
            free = not (self._new or self._group or self._alone)
            self._alone = self._alone or free
            return free
        # One that must be alone would wait for ever if others went on beginning.
        free = not (self._alone or self._alone_waiting)
        if losses >= GROUP_AT:
            free = free and self._group < GROUP
            self._group += free
        else:
            self._new += free
        return free

    async def wait(self, losses: int) -> None:
        """Wait for a place, and take it."""
        alone = losses >= ALONE_AT
        self._alone_waiting += alone
        try:
            while not self.admit(losses):
                await self._freed.wait()
        finally:
            self._alone_waiting -= alone
            # Those that were kept back for the one that must be alone look again, also if it was cancelled.
            self._wake()

    def leave(self, losses: int) -> None:
        """Free a place."""
        if losses >= ALONE_AT:
            self._alone = False
        elif losses >= GROUP_AT:
            self._group -= 1
        else:
            self._new -= 1
        self._wake()

    def _wake(self) -> None:
        # The new event first: what wakes up may wait again at once.
        freed, self._freed = self._freed, anyio.Event()
        freed.set()
