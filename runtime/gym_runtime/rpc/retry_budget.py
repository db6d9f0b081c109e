"""How often one rollout may repeat requests, over all of its calls, attempts and deliveries.

There are three limits, for three kinds of failure. A *retry* repeats a request that failed and may succeed:
at most `RETRIES`. A *loss* is a session whose worker ended, or in which another agent worker was stopped in
the middle of a call; neither is the rollout's fault: at most `LOSSES`, so many that the deadline usually
comes first. A *death* is a worker that ended while it executed one of the rollout's calls: the call may be
the cause, and `rpc.quarantine` describes how that is found out.
"""

from __future__ import annotations

from collections.abc import Mapping

from gym_runtime import clock
from gym_runtime.errors import GymError
from gym_runtime.messages.calls import RoleUse
from gym_runtime.rpc.lost import InFlightRequest

SAME_DEATH_S = 2.0
"""Concurrent calls of one rollout that lose the same worker within this time count as one death."""


RETRIES = 32
LOSSES = 64


class RetryBudget:
    """The retries that are left. A request carries how many the worker may take, its answer how many it took.

    Attributes:
        left: retries that remain.
        spent: retries that were taken.
        losses: sessions that were lost, not by the rollout's fault.
        dead: the workers in a row that ended while they executed the same call of this rollout.
        role_use: what models in roles have cost in the rollout's session, from its latest answers; the only
            source for a rollout without a verdict.
        waited_for: the longest waiting request at the time of cancellation; None once another is sent.
    """

    def __init__(self, retries: int = RETRIES) -> None:
        self.left = retries
        self.spent = 0
        self.losses = 0
        self.dead: list[str] = []
        self.role_use: dict[str, RoleUse] = {}
        self.waited_for: InFlightRequest | None = None
        self._suspected: set[str] | None = None
        self._last_death = ("", 0.0)

    def spend(self, error: GymError) -> None:
        """Take one retry.

        Raises:
            GymError: ``error`` itself, when no retry is left.
        """
        if self.left <= 0:
            raise error
        self.take(1)

    def take(self, retries: int) -> None:
        """Count retries that a worker took for this rollout."""
        self.left -= retries
        self.spent += retries

    def note_role_use(self, use: Mapping[str, RoleUse]) -> None:
        """Note what a session's roles cost so far. Answers carry totals; the one with more calls is kept."""
        for role, one in use.items():
            if role not in self.role_use or one.calls >= self.role_use[role].calls:
                self.role_use[role] = one

    def note_wait(self, hop: InFlightRequest) -> None:
        """A request was cancelled. An error of the rollout's deadline names the one that waited longest."""
        if self.waited_for is None or hop.since_s < self.waited_for.since_s:
            self.waited_for = hop

    def lose(self, error: GymError) -> None:
        """Count a session that was lost, not by the rollout's fault.

        Raises:
            GymError: ``error`` itself, when `LOSSES` are counted already.
        """
        if self.losses >= LOSSES:
            raise error
        self.losses += 1

    def died(self, worker: str, call: str) -> int:
        """Count a worker that ended while it executed a call; return how many have, in a row."""
        name, at_s = self._last_death
        now_s = clock.monotonic()
        # Concurrent calls of a rollout lose their worker together; that is one death, see `SAME_DEATH_S`.
        if name != worker or now_s > at_s + SAME_DEATH_S:
            self.dead.append(worker)
        self._last_death = (worker, now_s)
        # Created when needed: nearly no rollout loses a worker.
        self._suspected = self._suspected or set()
        self._suspected.add(call)
        return len(self.dead)

    @property
    def suspects(self) -> bool:
        """Whether some call of this rollout may have ended a worker; nearly none has."""
        return bool(self._suspected)

    def deaths_of(self, call: str) -> int:
        """How many workers in a row ended while they executed this call."""
        return len(self.dead) if self._suspected and call in self._suspected else 0

    def answered(self, call: str) -> None:
        """A call was answered, so it did not end its worker."""
        if self._suspected:
            self._suspected.discard(call)
            # The deaths count until the last suspected call is cleared: one of the others may still be the
            # cause.
            if not self._suspected:
                self.dead = []
