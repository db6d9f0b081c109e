"""A run whose client died, taken up by the next one.

The broker still has what the dead client did not handle: results that are in no file, journals of rollouts in
progress, waiting tasks. The next client goes on with the *same* run, so that results stay committed once,
journals are found, and an attempt still in progress counts. Waiting tasks are dropped and published again,
with the present settings; a second attempt at a rollout in progress is stopped by the journal, or its result
is refused. When the run is over, everything is deleted, as for any run.

A run that ended in order (finished, cancelled, Ctrl-C) has left nothing, nor has a run whose broker is gone:
a private broker without ``--state-dir``.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from gym_runtime.bus.interface import Bus
from gym_runtime.client.runs import Runs, tasks_of
from gym_runtime.client.status import Counter
from gym_runtime.client.stored import first_result
from gym_runtime.errors import BrokerError, UsageError
from gym_runtime.files.keys import KeyCounts
from gym_runtime.files.resume import Progress
from gym_runtime.messages.names import token
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, rollout_of
from gym_runtime.messages.rollout_spec import RolloutSpec, is_comparison
from gym_runtime.messages.stored_records import RUNS
from gym_runtime.rollout.journal import journal_subject


class Remains(msgspec.Struct, frozen=True):
    """What a dead client's run has left.

    Attributes:
        results: rollouts whose results are stored but are in no file; they need not run.
        begun: rollouts that have a journal, from which their next attempt goes on.
        settled: whether a rollout, given by task index and rollout index, is in a file.
        counted: the rows of this run that are in a file.
        created_s: when the run was begun, in seconds since the epoch.
    """

    results: KeyCounts
    begun: KeyCounts
    settled: Callable[[int, int], bool]
    counted: Counter
    created_s: float

    def resumed(self, task: RolloutSpec) -> RolloutSpec:
        """The task as it is to be published."""
        key = (task.task_index, task.rollout_index)
        return msgspec.structs.replace(task, taken_up=True) if key in self.begun else task


async def take_up(runs: Runs, run: str, progress: Progress) -> Remains | None:
    """Find what a run's dead client has left, and clear its queue; None if it has left nothing.

    Args:
        progress: what the files have.

    Raises:
        UsageError: the run's client is alive.
    """
    run, bus = token(run, "run"), runs.bus
    found = await bus.latest(f"runs.{run}")
    info = RUNS.read(found[0]) if found else None
    if info is None or info.state != "active":
        return None
    try:
        alive = await runs.answers(f"alive.client.{run}")
    except BrokerError:
        # These credentials may not ask; the files' lock still prevents two writers.
        alive = False
    if alive:
        raise UsageError(f"run '{run}' is run by another process now; wait for it, or cancel it")
    # First: no worker may begin a task while the rest is read. The tasks are published again.
    for pattern in tasks_of(run):
        await bus.forget(pattern)
    results, begun = KeyCounts(), KeyCounts()
    for subject in await bus.counts(f"rollout.{run}.>"):
        key = rollout_of(subject)
        if key is None or progress.settled(*key):
            continue
        journal = journal_subject(run, *key)
        if is_comparison(key[1]):
            if await _failed(bus, subject, progress, key):
                await _forget(bus, subject, f"{journal}.spent")
        elif await _failed(bus, subject, progress, key):
            # It starts again, so it gets its full limits.
            await _forget(bus, subject, journal, f"{journal}.spent", f"{journal}.role.*")
        else:
            results.put(*key, 1)
            runs.sweep(run).expected(key[0])
    for subject in await bus.counts(f"journal.{run}.>"):
        key = _journal_of(subject)
        if key is not None:
            begun.put(*key, 1)
    counted = Counter(info.created_s, info.repeats)
    # The files may have gigabytes.
    await anyio.to_thread.run_sync(counted.add_rows, progress.lines(), run)
    return Remains(results, begun, progress.settled, counted, info.created_s)


async def _forget(bus: Bus, *patterns: str) -> None:
    for pattern in patterns:
        await bus.forget(pattern)


async def _failed(bus: Bus, subject: str, progress: Progress, key: tuple[int, int]) -> bool:
    """Whether a stored result is a failure that is run again: one that the files have, or a comparison's.

    The rollouts that wait for a comparison are not run again.
    """
    comparison, attempts = is_comparison(key[1]), progress.attempts(*key)
    record = await first_result(bus, subject) if comparison or attempts else None
    if record is None or isinstance(record.outcome, Completed):
        return False
    return comparison or (isinstance(record.outcome, Failed | Cancelled) and record.attempt <= attempts)


def _journal_of(subject: str) -> tuple[int, int] | None:
    """The task's and the rollout's index in the subject of a journal, or of what is stored beside it."""
    _, run, _, *rest = subject.split(".")
    return rollout_of(".".join(["rollout", run, *rest[:2]]))
