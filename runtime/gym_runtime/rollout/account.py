"""What a rollout has used of its limits, over all of its attempts and deliveries.

A rollout has one deadline, one budget of retries and one number of tries, whoever works on it. What is used
up stands in a record of its own beside the journal, with or without one, and the next delivery goes on from
it. The record is only written when something goes wrong or takes long: when an attempt failed and is
repeated, when a task is given back, when a second delivery begins, and each 1/`NOTES` of the deadline. So a
rollout that goes well costs nothing, and of the time of a worker that is lost at most that part goes
uncounted.

Only the time in which an attempt is being made counts towards the deadline: not the time in the queue, not
that in which the run's client is away, and not that in which a suspect waits (`gym_runtime.workers.turns`).

A task that was given back (a worker drained, the client was away, the broker was in trouble) says so in the
record. So a delivery that finds that another was at work, and did not say so, knows that its worker was lost;
`Spent.losses` counts such workers in a row, as long as the journal has not grown between them.
"""

from __future__ import annotations

import anyio
import msgspec

from gym_runtime.bus.interface import Bus
from gym_runtime.rpc.retry_budget import RETRIES, Budget

NOTES = 16


class Spent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record.

    Attributes:
        used_s: the time of attempts, in seconds.
        retries: of the budget.
        attempts: that are over, for whatever reason.
        failures: attempts that failed and were repeated; these are the tries that ``max_attempts`` limits.
        losses: agent workers in a row that were lost with this rollout.
        turns: how many turns the journal had when the last delivery began.
        working: a worker is at it; if another finds this, that worker was lost.
    """

    used_s: float = 0.0
    retries: int = 0
    attempts: int = 0
    failures: int = 0
    losses: int = 0
    turns: int = 0
    working: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Spent).decode


class Account:
    """One rollout's limits in the hands of one delivery.

    Attributes:
        spent: what deliveries before this one have used, and how its attempts went.
        budget: the retries that are left.
    """

    def __init__(self, bus: Bus, journal_subject: str, limit_s: float) -> None:
        self.spent = Spent()
        self.budget = Budget()
        self._bus = bus
        self._subject = f"{journal_subject}.spent"
        self._limit_s = limit_s
        self._sequence = 0
        self._started_s: float | None = None
        self._noted_s = 0.0
        self._before = self.spent
        self._over = False
        self._writing = anyio.Lock()

    async def load(self, *, turns: int, delivered_before: bool) -> None:
        """Read what deliveries before this one have used; ``turns`` are in the journal now."""
        found = await self._bus.latest(self._subject)
        if found:
            self._sequence = found[0].sequence
            before = _decode(found[0].payload)
        else:
            # The first delivery writes nothing at its beginning: it may have been lost, or never have come.
            before = Spent(attempts=1 if delivered_before else 0)
        if before.working:
            before = msgspec.structs.replace(before, attempts=before.attempts + 1)
            if delivered_before:
                losses = before.losses + 1 if before.turns == turns else 1
                before = msgspec.structs.replace(before, losses=losses)
        self._before = self.spent = msgspec.structs.replace(before, turns=turns)
        self.budget = Budget(RETRIES - before.retries)

    def start(self) -> None:
        """The first attempt of this delivery begins, and with it the time that counts."""
        self._started_s = self._noted_s = anyio.current_time()

    @property
    def deadline(self) -> float:
        """When the rollout's time is over, in the event loop's time; attempts made now are meant."""
        started_s = anyio.current_time() if self._started_s is None else self._started_s
        return started_s + self._limit_s - self._before.used_s

    @property
    def left_s(self) -> float:
        """What is left of the rollout's time."""
        return self.deadline - anyio.current_time()

    @property
    def due(self) -> bool:
        """It is time to note how long the attempts have taken."""
        started = self._started_s is not None and not self._over
        return started and anyio.current_time() >= self._noted_s + max(1.0, self._limit_s / NOTES)

    def attempt_over(self, *, failed: bool) -> None:
        """An attempt is over and did not settle the rollout; it counts as a try if it ``failed``."""
        spent = self.spent
        self.spent = msgspec.structs.replace(
            spent, attempts=spent.attempts + 1, failures=spent.failures + failed
        )

    def close(self) -> None:
        """This delivery is over."""
        self._over = True

    async def give_back(self) -> bool:
        """Note that the task is given back, and how its last attempt went: it neither failed nor was lost."""
        self.attempt_over(failed=False)
        return await self.note(working=False, last=True)

    async def note(self, *, working: bool, last: bool = False) -> bool:
        """Write it down; False if another delivery has done so meanwhile, which has the rollout now.

        Nothing more is written after the ``last`` note, or once the task is settled (`close`).

        Raises:
            GymError: the broker does not store it.
        """
        async with self._writing:
            if self._over:
                return True
            self._over = last
            now_s = anyio.current_time()
            used_s = 0.0 if self._started_s is None else now_s - self._started_s
            self._noted_s = now_s
            self.spent = msgspec.structs.replace(
                self.spent,
                used_s=self._before.used_s + used_s,
                retries=self._before.retries + self.budget.spent,
                working=working,
            )
            sequence = await self._bus.append(self._subject, _encode(self.spent), expect=self._sequence)
            if sequence is None:
                return False
            self._sequence = sequence
            return True
