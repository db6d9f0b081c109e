"""How much of its limits a rollout has used, over all of its attempts and deliveries.

A rollout has one deadline, one budget of retries and one limit of failed attempts, on all workers together.
Its use is stored in a record beside the journal, also for a rollout without a journal, and the next delivery
continues from that record. The record is written only when something fails or takes long: when an attempt
failed and is repeated, when a task is given back, when a second delivery begins, and after each 1/`NOTES` of
the deadline. So a rollout without trouble costs nothing, and if a worker is lost, at most that fraction of
its time is not counted.

Only the time of attempts counts towards the deadline: not the time in the queue, not the time while the run's
client is gone, not the time while the model's engines are too busy (`Account.hold`), and not the time while a
suspect waits (`gym_runtime.rpc.quarantine`).

When a worker gives a task back (it drains, the client is gone, the broker does not answer), it clears
`Spent.working`. So a delivery that finds ``working`` set knows that the previous worker was lost;
`Spent.losses` counts such workers in a row, as long as the journal has not grown between them. After
`CLEARED_AT_MOST` lost workers, growth of the journal no longer clears the count, because a rollout may end a
worker after each turn; unless the worker was ended from outside, up to `KILLED_AT_MOST` lost workers, as of
spot instances. Too little memory looks the same, so these have a limit, too.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.messages.stored_records import Stored
from gym_runtime.rpc.retry_budget import RETRIES, RetryBudget

NOTES = 16
CLEARED_AT_MOST = 5
KILLED_AT_MOST = 50


class Spent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record.

    Attributes:
        used_s: the time of all attempts, in seconds.
        retries: how many of the budget's retries were taken.
        attempts: how many attempts are over, for any reason.
        failures: attempts that failed and were repeated; ``max_attempts`` limits these.
        losses: agent workers in a row that were lost with this rollout.
        lost: all agent workers that were lost with it.
        turns: how many turns the journal had when the last delivery began.
        working: a worker has the rollout; if the next delivery finds this set, that worker was lost.
        worker: that worker.
    """

    used_s: float = 0.0
    retries: int = 0
    attempts: int = 0
    failures: int = 0
    losses: int = 0
    lost: int = 0
    turns: int = 0
    working: bool = False
    worker: str = ""

    @property
    def cleared_by_turns(self) -> bool:
        """Whether storing a turn clears the losses."""
        return self.lost < CLEARED_AT_MOST


_encode = msgspec.json.Encoder().encode
_SPENT = Stored(msgspec.json.Decoder(Spent).decode)


class Account:
    """One rollout's limits, as one delivery counts them.

    Args:
        worker: the worker that has this delivery.
        rollouts: how many rollouts it counts for; a group's comparison may take the retries of all of them.

    Attributes:
        spent: what earlier deliveries have used, and the attempts of this one.
        budget: the retries that are left.
        queued_s: how long it waited for its first delivery; 0 where that is not known.
        noted: this delivery has stored a note, or one is on its way.
        lost_worker: the worker of the previous delivery, if it was lost and is known.
    """

    def __init__(
        self,
        bus: Bus,
        journal_subject: str,
        limit_s: float,
        queued_s: float = 0.0,
        *,
        worker: str = "",
        rollouts: int = 1,
    ) -> None:
        self.spent = Spent()
        self._retries = RETRIES * rollouts
        self.budget = RetryBudget(self._retries)
        self.queued_s = queued_s
        self.lost_worker = ""
        self._worker = worker
        self._bus = bus
        self._subject = f"{journal_subject}.spent"
        self._limit_s = limit_s
        self._sequence = 0
        self._started_s: float | None = None
        self._held_s: float | None = None
        self._noted_s = 0.0
        self._before = self.spent
        self._over = False
        self.noted = False
        self._writing = anyio.Lock()

    async def load(
        self,
        *,
        turns: int,
        delivered_before: bool,
        killed: Callable[[str], bool] = lambda worker: False,
    ) -> None:
        """Read what earlier deliveries have used.

        Args:
            turns: how many turns the journal has now.
            killed: tells whether a lost worker was ended from outside.
        """
        found = await self._bus.latest(self._subject)
        before = None
        if found:
            self._sequence = found[0].sequence
            before = _SPENT.read(found[0])
        if before is None:
            # A first delivery writes no record when it begins, and may never have arrived. Counting it as
            # lost only makes the rollout wait for a place (`gym_runtime.rpc.quarantine`). After an unreadable
            # record the limits begin again, because no other figure is known.
            lost = int(delivered_before)
            before = Spent(attempts=lost, losses=lost, lost=lost)
        if before.working:
            self.lost_worker = before.worker
            # The lost worker could not count its own last attempt.
            before = msgspec.structs.replace(before, attempts=before.attempts + 1)
            if delivered_before:
                # A longer journal proves that the previous worker made progress; the count begins again.
                spared = before.lost < KILLED_AT_MOST and killed(before.worker)
                got_on = before.turns != turns and (before.cleared_by_turns or spared)
                losses = 1 if got_on else before.losses + 1
                before = msgspec.structs.replace(before, losses=losses, lost=before.lost + 1)
        self._before = self.spent = msgspec.structs.replace(before, turns=turns)
        self.budget = RetryBudget(self._retries - before.retries)

    def start(self) -> None:
        """The first attempt of this delivery begins; from now on its time counts."""
        self._started_s = self._noted_s = clock.monotonic()

    @property
    def held(self) -> bool:
        """It waits for the model's engines, between two turns or before the first."""
        return self._held_s is not None

    def hold(self) -> None:
        """From now on its time does not count, until `go_on`."""
        self._held_s = clock.monotonic()

    def go_on(self) -> float:
        """Its time counts again; returns for how many seconds it did not."""
        assert self._held_s is not None
        held_s, self._held_s = clock.monotonic() - self._held_s, None
        if self._started_s is not None:
            self._started_s += held_s
        return held_s

    @property
    def left_s(self) -> float:
        """The seconds until the rollout's time is over if its attempts go on now."""
        return self._limit_s - self._before.used_s - self._used_s

    @property
    def _used_s(self) -> float:
        now_s = clock.monotonic() if self._held_s is None else self._held_s
        return 0.0 if self._started_s is None else now_s - self._started_s

    @property
    def due(self) -> bool:
        """Whether the time of the attempts should be stored now."""
        started = self._started_s is not None and not self._over
        # At least a second: a short deadline must not cost a stored record for each turn.
        return started and clock.monotonic() >= self._noted_s + max(1.0, self._limit_s / NOTES)

    def attempt_over(self, *, failed: bool) -> None:
        """An attempt is over and did not settle the rollout; ``max_attempts`` counts it if it ``failed``."""
        spent = self.spent
        self.spent = msgspec.structs.replace(
            spent, attempts=spent.attempts + 1, failures=spent.failures + failed
        )

    def close(self) -> None:
        """This delivery is over."""
        self._over = True

    async def settled(self) -> None:
        """Return when no note is on its way to the broker; a broken connection holds one up."""
        if self.noted:
            async with self._writing:
                pass

    async def give_back(self) -> bool:
        """Store that the task is given back: its last attempt, if any began, neither failed nor was lost."""
        if self._started_s is not None:
            self.attempt_over(failed=False)
        return await self.note(working=False, last=True)

    async def note(self, *, working: bool, last: bool = False) -> bool:
        """Store the record; False if another delivery stored one meanwhile: the rollout is then its own.

        Nothing more is stored after the ``last`` note, or once the task is settled (`close`).

        Raises:
            GymError: the broker does not store it.
        """
        self.noted = True
        async with self._writing:
            if self._over:
                return True
            # Also when storing is cancelled: the record may be stored, and no later note may overwrite it.
            self._over = last
            self._noted_s = clock.monotonic()
            self.spent = msgspec.structs.replace(
                self.spent,
                used_s=self._before.used_s + self._used_s,
                retries=self._before.retries + self.budget.spent,
                working=working,
                worker=self._worker,
            )
            sequence = await self._bus.append(self._subject, _encode(self.spent), expect=self._sequence)
            if sequence is None:
                return False
            self._sequence = sequence
            return True
