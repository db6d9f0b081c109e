"""Quarantine: finds the call or the rollout that ends its workers, and stops it; the others go on.

A process that ends without notice (a crash in a verifier, too little memory, a kill from outside), or is
silent for long (frozen, or one call keeps the interpreter's lock), loses all that it works on. One of these
may be the cause, and would end the next worker too; the others must not fail for it. So each is sent again,
and counts the workers in a row that were lost with it:

====  =====================================  ==============================================================
lost  a call to a model or an environment    a rollout at an agent worker begins
====  =====================================  ==============================================================
0     is executed like any other             at once
1     is executed like any other             when fewer than 64 such rollouts have a place
2     is executed alone: the worker takes    when fewer than 8 such rollouts have a place
      no new calls, and executes it when
      all others are finished
3     as with 2, if the last worker was      when no rollout has a place; until it gives its own up, no other
      ended from outside, as a spot          begins
      instance is; else never: that worker
      ended with this call alone, so the
      call is the cause
4     the same                               the same; never, if the last worker crashed: no other rollout
                                             there was new, so this one is the cause
6     never: too much memory, too, looks     the same
      like a kill from outside
12    never                                  never, as a call after 6
====  =====================================  ==============================================================

*A call* is cleared by its answer; `RetryBudget` counts the workers lost with it. Before the router sends a
call that must be alone, it asks the worker for a place (`Request.place`), and gets `Busy` until the place is
free. The end of a worker counts only for a call that has its place, so a waiting call is not suspected for
what others do. A call that ends every worker costs three workers, or one more beside other causes. Any other
call is answered in the end, however many causes there are: it fails only if workers that execute it alone are
ended from outside, four in a row after two others.

*A rollout* is cleared by a turn that it stores, up to `rollout.account.CLEARED_AT_MOST` times; from then on
it keeps its place to its end, and a turn clears it only of workers that were ended from outside, up to
`rollout.account.KILLED_AT_MOST` times. `rollout.account` counts the workers lost with it. A supervisor knows
whether a worker crashed or was ended from outside, and the replacement that it starts announces this
(`Heartbeat.crashed`, `Heartbeat.killed`). A worker that is silent has no replacement, and counts as crashed.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import anyio

from gym_runtime import clock
from gym_runtime.errors import GymError, ModelError, ResourceError
from gym_runtime.timing import PLACE_KEPT_S

ALONE_AT = 2
MAX_DEATHS = 3
MAX_KILLED = 6
"""The three limits of a call."""
GROUPS = (inf, 64, 8)
"""How many rollouts that have lost 0, 1 or 2 workers in a row have a place at once; after more, one."""
ROLLOUT_ALONE_AT = len(GROUPS)
MAX_CRASHES = 4
MAX_KILLS = 12
"""After so many workers in a row a rollout fails, if the last one crashed, and in any case."""


class Before(NamedTuple):
    """The worker whose place another one takes: its name, if it crashed, or if it was ended from outside."""

    crashed: str = ""
    killed: str = ""


FIRST = Before()
"""No worker had the place before."""


def quarantined(kind: str, pool: str, deaths: int) -> GymError:
    """The error for a call that is not sent again; never retried."""
    message = (
        f"{deaths} workers of {kind} '{pool}' ended one after the other while they worked on the same "
        "call of this rollout, and the last one worked on nothing else: the call ends them (a crash, or too "
        "little memory), or it keeps the interpreter's lock, so that they do not answer; see their logs"
    )
    return ModelError(message, stage=kind) if kind == "model" else ResourceError(message, stage=kind)


class CallPlace:
    """The place at one model or resource worker for a call that must be alone. Pure except for the clock."""

    def __init__(self) -> None:
        self._key = ""
        self._held_until_s = 0.0
        self._kept_until_s = 0.0

    @property
    def closed(self) -> bool:
        """Whether the worker is kept for a call that must be alone; it then takes no other calls."""
        now_s = clock.monotonic()
        return now_s < self._kept_until_s or (bool(self._key) and now_s < self._held_until_s)

    def admit(self, key: str, in_use: int) -> bool:
        """Give the place to a call if it is free; ``in_use`` is how many calls are in progress."""
        now_s = clock.monotonic()
        if self._held_until_s <= now_s:
            self._key = ""
        # The call asks again if the answer to its first question was lost.
        if key == self._key:
            return True
        # Reserved even when refused: new calls would otherwise keep the worker from becoming free. The wait
        # delays a worker by its longest call; another death would cost the other calls more.
        self._kept_until_s = now_s + PLACE_KEPT_S
        if in_use or self._key:
            return False
        self._key, self._held_until_s = key, now_s + PLACE_KEPT_S
        return True

    def begin(self, key: str) -> bool:
        """Start a call that must be alone; False if it does not have the place."""
        if key != self._key:
            return False
        # The place does not expire while the call is executed.
        self._held_until_s = float("inf")
        return True

    def end(self, key: str) -> None:
        """Free a call's place."""
        if key == self._key:
            self._key = ""


class RolloutPlace:
    """A rollout's place at its agent worker, until it stores a turn or ends; taken at once if it is free."""

    def __init__(self, places: RolloutPlaces, losses: int) -> None:
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


class RolloutPlaces:
    """The places at one agent worker.

    Attributes:
        waiting: how many rollouts wait for a place.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self._taken = [0] * (ROLLOUT_ALONE_AT + 1)
        self._alone_waiting = 0
        self._freed = anyio.Event()

    def place(self, losses: int) -> RolloutPlace:
        """The place for a rollout that has lost this many workers in a row."""
        return RolloutPlace(self, min(losses, ROLLOUT_ALONE_AT))

    def admit(self, losses: int) -> bool:
        """Take a place if one is free."""
        if losses == ROLLOUT_ALONE_AT:
            free = not any(self._taken)
        else:
            # A rollout that must be alone would wait for ever if others still began.
            held = self._taken[ROLLOUT_ALONE_AT] or self._alone_waiting
            free = not held and self._taken[losses] < GROUPS[losses]
        self._taken[losses] += free
        return free

    async def wait(self, losses: int) -> None:
        """Wait for a place, and take it."""
        alone = losses == ROLLOUT_ALONE_AT
        self.waiting += 1
        self._alone_waiting += alone
        try:
            while not self.admit(losses):
                await self._freed.wait()
        finally:
            self.waiting -= 1
            self._alone_waiting -= alone
            # Rollouts held back for this one check again, also if it was cancelled.
            self._wake()

    def leave(self, losses: int) -> None:
        """Free a place."""
        self._taken[losses] -= 1
        self._wake()

    def _wake(self) -> None:
        # The new event first: a task that wakes up may wait again at once.
        freed, self._freed = self._freed, anyio.Event()
        freed.set()
