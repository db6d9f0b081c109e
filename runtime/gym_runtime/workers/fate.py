"""The fate of a delivered rollout: four verdicts, and the one object that knows whether it goes on.

===========  ==============================================================================================
`Commit`     its record is stored, once for all deliveries, and the delivery is acknowledged
`GiveBack`   it is delivered again, by its queue after some seconds or by its run's own queue; that is no loss
`Drop`       the delivery is acknowledged without a record: one exists already, or nothing waits for it
`Abandon`    the delivery is left alone: another attempt has taken over the rollout
===========  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from gym_runtime import clock
from gym_runtime.bus.interface import Bus, Delivery
from gym_runtime.messages.names import rollout_token
from gym_runtime.messages.outcomes import RolloutRecord, encode_record
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_control import is_own, own_subject
from gym_runtime.rollout.account import Account
from gym_runtime.rollout.attempts import Attempts
from gym_runtime.rollout.journal import Journal, journal_subject
from gym_runtime.rollout.rollout import Agent
from gym_runtime.rpc.actors import Actors


def record_subject(task: RolloutSpec) -> str:
    """Where a rollout's record is stored."""
    return f"rollout.{rollout_token(task.rollout_id)}"


PARKED_S = 0.2
"""After so long a parked rollout may be delivered again: workers that do not know of the pause yet would be
delivered it at once."""


class Commit(msgspec.Struct, frozen=True):
    """Store the record; kept encoded, so that its row, which may be large, is in memory once."""

    subject: str
    stored: bytes

    @classmethod
    def of(cls, task: RolloutSpec, record: RolloutRecord) -> Commit:
        """The verdict with a rollout's record."""
        return cls(record_subject(task), encode_record(record))


class GiveBack(msgspec.Struct, frozen=True):
    """Deliver it again.

    Attributes:
        after_s: its queue delivers it after so many seconds.
        to: the subject of its run's own queue, into which it goes instead.
        begun: it has a journal.
    """

    after_s: float = 0.0
    to: str | None = None
    begun: bool = False


class Drop(msgspec.Struct, frozen=True):
    """Acknowledge it without a record."""

    reason: str


class Abandon(msgspec.Struct, frozen=True):
    """Leave it alone."""

    reason: str


Verdict = Commit | GiveBack | Drop | Abandon


class Fate:
    """One delivered rollout at its worker, until its verdict.

    Attributes:
        redelivered: an earlier delivery, or an earlier client's publication, may have begun it.
        began_s: when this delivery began, by `gym_runtime.clock.monotonic`.
        instead: the verdict that stopped it; None if its record says how it ended.
    """

    def __init__(
        self,
        task: RolloutSpec,
        delivery: Delivery,
        agent: Agent,
        bus: Bus,
        actors: Actors,
        *,
        worker: str,
        queued_s: float = 0.0,
    ) -> None:
        self.task = task
        self.delivery = delivery
        self.redelivered = delivery.deliveries > 1 or task.taken_up
        self.began_s = clock.monotonic()
        self.instead: Verdict | None = None
        self.journal_at = journal_subject(task.run, task.task_index, task.rollout_index)
        self.journal = Journal(bus if task.durability == "turn" else None, self.journal_at)
        self.account = Account(
            bus,
            self.journal_at,
            task.timeout_s,
            queued_s,
            worker=worker,
            rollouts=max(1, len(task.candidates)),
        )
        self.attempts = Attempts(task, agent, bus, actors, self.journal, self.account, worker)

    async def load(self, killed: Callable[[str], bool]) -> None:
        """Read what earlier deliveries have stored; ``killed`` tells if a worker was ended from outside."""
        if self.redelivered:
            await self.journal.load()
            before = self.delivery.deliveries > 1
            await self.account.load(turns=self.journal.length, delivered_before=before, killed=killed)

    def stop(self, instead: Verdict | None = None) -> None:
        """Stop at once: cancelled, or with another verdict. An earlier verdict stands."""
        self.instead = instead or self.instead
        self.attempts.stop()

    def park(self, *, at_turn: bool) -> None:
        """Stop before the model is asked again, or do not; a rollout without a journal never stops so."""
        # Given back, it is the first that goes on after the pause.
        own = None if is_own(self.delivery.subject) else own_subject(self.task)
        parked = GiveBack(PARKED_S, to=own, begun=True)
        self.journal.before_turn = partial(self.stop, parked) if at_turn and self.journal.bus else None
        if self.journal.before_turn is not None and self.account.held:
            self.journal.before_turn()


class Fates:
    """The rollouts of one agent worker."""

    def __init__(self) -> None:
        # By object: a rollout that is delivered a second time is there twice, and both can be stopped.
        self._by_run: dict[str, dict[int, Fate]] = {}

    def __iter__(self) -> Iterator[Fate]:
        return iter([fate for rollouts in self._by_run.values() for fate in rollouts.values()])

    def add(self, fate: Fate) -> None:
        """A rollout begins."""
        self._by_run.setdefault(fate.task.run, {})[id(fate)] = fate

    def remove(self, fate: Fate) -> None:
        """A rollout is over."""
        rollouts = self._by_run.get(fate.task.run, {})
        rollouts.pop(id(fate), None)
        if not rollouts:
            self._by_run.pop(fate.task.run, None)

    def of(self, run: str) -> list[Fate]:
        """The rollouts of a run."""
        return list(self._by_run.get(run, {}).values())

    def attached(self) -> list[str]:
        """The runs that need their client."""
        # Either all rollouts of a run are attached, or none of them.
        return [run for run, rollouts in self._by_run.items() if next(iter(rollouts.values())).task.attached]
