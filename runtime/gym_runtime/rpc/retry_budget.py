"""How often one rollout may ask again, over all of its hops, attempts and deliveries.

Three allowances, because three things go wrong. A *retry* repeats what failed and may succeed: there are
`RETRIES`. A *loss* is a session that was on a worker that ended: the rollout has no part in it, so there are
`LOSSES`, and only the deadline usually ends them. A *death* is a worker that ended while it worked on one of
the rollout's calls: the call may be what ended it, and `rpc.suspects` says how that is found out.
"""

from __future__ import annotations

import anyio

from gym_runtime.errors import GymError

RETRIES = 32
LOSSES = 64
SAME_DEATH_S = 2.0
"""Calls of one rollout that lose the same worker within this time have seen one death, not several."""


class Budget:
    """Retries that are left. A hop's share travels with its request, and what it spent with its answer.

    Attributes:
        left: retries that remain.
        spent: retries that were taken.
        losses: sessions that were lost with their workers.
        deaths: workers that ended, one after the other, while they worked on the same call of this rollout.
    """

    def __init__(self, retries: int = RETRIES) -> None:
        self.left = retries
        self.spent = 0
        self.losses = 0
        self.deaths = 0
        self._suspected: set[str] | None = None
        self._last_death = ("", 0.0)

    def spend(self, error: GymError) -> None:
        """Take one retry.

        Raises:
            GymError: ``error`` itself, when none is left.
        """
        if self.left <= 0:
            raise error
        self.take(1)

    def take(self, retries: int) -> None:
        """Count what another hop has spent."""
        self.left -= retries
        self.spent += retries

    def lose(self, error: GymError) -> None:
        """Count a session that was lost with its worker.

        Raises:
            GymError: ``error`` itself, when that has happened too often.
        """
        if self.losses >= LOSSES:
            raise error
        self.losses += 1

    def died(self, worker: str, call: str) -> int:
        """A worker ended while it worked on a call; returns how many have, in a row."""
        name, at_s = self._last_death
        now_s = anyio.current_time()
        if name != worker or now_s > at_s + SAME_DEATH_S:
            self.deaths += 1
        self._last_death = (worker, now_s)
        self._suspected = self._suspected or set()
        self._suspected.add(call)
        return self.deaths

    def deaths_of(self, call: str) -> int:
        """How many workers in a row ended while they worked on this call."""
        return self.deaths if self._suspected and call in self._suspected else 0

    def answered(self, call: str) -> None:
        """A call was answered: it did not end its worker."""
        if self._suspected:
            self._suspected.discard(call)
            if not self._suspected:
                self.deaths = 0
