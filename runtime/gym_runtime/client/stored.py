"""The results that a broker stores for a run: each rollout's once, and what cannot be read as a failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

import anyio
import msgspec

from gym_runtime.bus.interface import Bus, Record
from gym_runtime.errors import RuntimeFault
from gym_runtime.files.keys import KeyCounts
from gym_runtime.messages.names import token
from gym_runtime.messages.outcomes import RESULTS, RolloutRecord, rollout_of
from gym_runtime.messages.responses import NULL
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.stored_records import leave_out
from gym_runtime.rollout.record import refused_record
from gym_runtime.timing import JOURNAL_READ_S

Restored = Callable[[RolloutRecord], RolloutRecord]
"""Puts back what a result lacks because its client has the row; raises `msgspec.DecodeError` if it cannot."""


class StoredResult(msgspec.Struct, frozen=True):
    """What is stored of one rollout.

    Attributes:
        readable: whether this is the stored record; else it is that of a failure, which says why.
    """

    record: RolloutRecord
    sequence: int
    readable: bool = True


async def stored_results(
    bus: Bus, run: str, restored: Restored | None = None
) -> AsyncGenerator[StoredResult]:
    """A run's results, past and future, in the order of their commits; each rollout's once.

    The writer asks the broker to refuse a second result, so a hostile agent can store one by not asking. The
    first result in the stream's order counts; the log names the others.
    """
    # Not a set: it holds an entry for each rollout of a run, which may be millions.
    had = KeyCounts()
    async for stored in bus.records(f"rollout.{token(run, 'run')}.>"):
        key = rollout_of(stored.subject)
        if key is None:
            leave_out(stored.subject, "it is no rollout's subject")
        elif had.increase(*key) > 1:
            # An attempt may also be so late that the broker has shed the record of the one before.
            leave_out(stored.subject, "the rollout has a result already, and the first one counts")
        else:
            yield _readable(stored, restored)


async def first_result(bus: Bus, subject: str) -> RolloutRecord | None:
    """The result that counts of one rollout; None if it was deleted."""
    with anyio.move_on_after(JOURNAL_READ_S):
        async for stored in bus.records(subject):
            return _readable(stored).record
    return None


def _readable(stored: Record, restored: Restored | None = None) -> StoredResult:
    """The result; one that cannot be read is a failure, because its rollout cannot have another one."""
    record = RESULTS.problem(stored)
    if restored is not None and not isinstance(record, str):
        try:
            record = restored(record)
        except msgspec.DecodeError as error:
            record = str(error)
    if not isinstance(record, str):
        return StoredResult(record, stored.sequence)
    leave_out(stored.subject, record)
    error = RuntimeFault(
        f"the stored result cannot be read ({record[:500]}): another version of gym-runtime, or an intruder, "
        "stored it; make the rollout again with --resume",
        stage="commit",
    )
    _, run, task_index, rollout_index = stored.subject.split(".")
    spec = RolloutSpec(
        run=run,
        task_index=int(task_index),
        rollout_index=int(rollout_index),
        environment="",
        agent="",
        row=NULL,
    )
    failed = refused_record(spec, error, worker="")
    return StoredResult(failed, stored.sequence, readable=False)
