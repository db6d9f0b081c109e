"""Starting a run on its output files, or resuming an interrupted run.

A rollout is done when the rollouts file has it. A failed one is run again, unless its failure is
terminal or is in the failures file `MAX_FAILURES` times, or its group was compared without it. Outages
(`gym_runtime.errors.Fault.outage`) do not count towards that limit, and cancelled rollouts are always run
again. With ``retry_failed`` all failed ones are run again whose group was not compared without them. Going
on needs the same input rows and the same settings, or more rows and repeats where the run is to grow
(`gym_runtime.files.resume`). No row of an earlier run is removed, unless the new one is to replace it.

A run that grows keeps the keys of its rollouts: a row's repeats count on, and rows that follow come after the
others in the numbering (`gym_runtime.files.rows`). So a larger run contains the smaller one if its rows begin
with the same ones; the digest of these (`Dataset.earlier_digest`) says whether they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from gym_runtime.errors import UsageError
from gym_runtime.files.appender import repair_tail, write_whole
from gym_runtime.files.keys import KeyCounts
from gym_runtime.files.results import GROWING, Manifest, OutputFiles, load_manifest
from gym_runtime.files.rows import materialize
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.files.sample import CANCELLED, lines_of, samples_of
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.plurals import counted

MAX_FAILURES = 3


class Progress:
    """The part of a run that is done already; empty for a new run.

    Attributes:
        previous: the manifest of the part before this one, or None.
        done: rollouts with a verdict.
        given_up: failed rollouts that are not run again.
        notices: messages for the user, one line each.
    """

    def __init__(self, previous: Manifest | None = None) -> None:
        self.previous = previous
        self.done = KeyCounts()
        self.given_up = KeyCounts()
        self.notices: list[str] = []
        self._attempts = KeyCounts()
        self._compared = KeyCounts()
        self._paths: tuple[Path, ...] = ()

    def __len__(self) -> int:
        """How many rollouts are settled."""
        return len(self.done) + len(self.given_up)

    def settled(self, task_index: int, rollout_index: int) -> bool:
        """The rollout is not to be run again."""
        key = (task_index, rollout_index)
        return key in self.done or key in self.given_up

    def attempts(self, task_index: int, rollout_index: int) -> int:
        """How many attempts at a rollout that failed the files know of."""
        return self._attempts.get(task_index, rollout_index)

    def remaining(self, tasks: Iterable[RolloutSpec]) -> Iterator[RolloutSpec]:
        """The rollouts that are still to be run, with the attempts already spent on them."""
        for task in tasks:
            if not self.settled(task.task_index, task.rollout_index):
                spent = self._attempts.get(task.task_index, task.rollout_index)
                yield msgspec.structs.replace(task, attempt_base=spent) if spent else task

    def refuse_lone(self, tasks: Iterable[RolloutSpec]) -> None:
        """Refuse a rollout that would find no other to be compared with: its group was compared before.

        Raises:
            UsageError: a row of a run that grows gets a single such rollout.
        """
        later = KeyCounts()
        for task in self.remaining(tasks) if len(self._compared) else ():
            if task.group is not None and (task.task_index, 0) in self._compared:
                later.increase(task.task_index, 0)
        for (task_index, _), count in later.items():
            if count == 1:
                raise UsageError(
                    f"task {task_index} would get one new rollout, with nothing to compare it with: the "
                    "others of its group have been compared; raise --repeats by two at least"
                )

    def lines(self) -> Iterator[bytes]:
        """All rows that have been `read`, settled or not."""
        for path in self._paths:
            for _, line in lines_of(path):
                yield line

    def read(self, files: OutputFiles, metrics: Metrics, *, retry_failed: bool = False) -> None:
        """Read the files, and add the settled rollouts to the metrics.

        Args:
            retry_failed: no failure is final.

        Raises:
            UsageError: a line other than the last is no rollout row.
        """
        self._paths = (files.rollouts, files.failures)
        for path in self._paths:
            dropped = repair_tail(path) if path.exists() else 0
            if dropped:
                self.notices.append(f"{path}: dropped a torn last line of {counted(dropped, 'byte')}")
        twice = 0
        for sample, _, _ in samples_of(files.rollouts):
            if self.done.increase(*sample.key) > 1:
                twice += 1
            else:
                metrics.add_sample(sample)
                if sample.compared:
                    self._compared.put(sample.task_index, 0, 1)
        if twice:
            self.notices.append(
                f"{files.rollouts}: {counted(twice, 'row is', 'rows are')} in it more than once; "
                "the first counts"
            )
        self._read_failures(files.failures, metrics, retry_failed)

    def _read_failures(self, path: Path, metrics: Metrics, retry_failed: bool) -> None:
        """Twice over the file: which failures are final is known only at its end."""
        times = KeyCounts()
        failed = KeyCounts()  # without outages
        for sample, _, _ in samples_of(path):
            key = sample.key
            self._attempts.put(*key, max(self._attempts.get(*key), sample.attempt))
            if sample.outcome != CANCELLED:
                times.increase(*key)
                if sample.fault is None or not sample.fault.outage:
                    failed.increase(*key)
                if sample.terminal:
                    failed.put(*key, MAX_FAILURES)
        # Only now: a later line may show that a failure is final.
        for key, _ in times.items():
            too_often = failed.get(*key) >= MAX_FAILURES and not retry_failed
            final = too_often or (key[0], 0) in self._compared
            if key not in self.done and final:
                self.given_up.put(*key, 1)
        for sample, _, _ in samples_of(path):
            if sample.key in self.given_up and sample.outcome != CANCELLED:
                if times.get(*sample.key) == 1:
                    metrics.add_sample(sample)
                times.put(*sample.key, max(0, times.get(*sample.key) - 1))


def start_run(
    files: OutputFiles,
    manifest: Manifest,
    *,
    resume: bool,
    earlier_digest: str | None = None,
    retry_failed: bool = False,
    overwrite: bool = False,
    metrics: Metrics,
    tasks: Callable[[], Iterable[RolloutSpec]] | None = None,
) -> Progress:
    """Make the output files ready for a run and save its manifest. Hold the `Lock` while you call it.

    Args:
        manifest: of the run to be started.
        earlier_digest: a run that is resumed may have more rows and repeats than before; its rows have this
            `Dataset.earlier_digest`.
        retry_failed: rollouts whose failure would be final are run again.
        overwrite: the files of an earlier run are put aside (`OutputFiles.put_aside`).
        metrics: gets the rollouts that are settled already.
        tasks: all rollouts, to write the inputs of a run that has grown again.

    Raises:
        UsageError: there are rows and neither ``resume`` nor ``overwrite`` is set; or ``resume`` is set, and
            settings or rows differ, or the rows there are not of a run that can be resumed. Nothing was
            changed.
    """
    previous = load_manifest(files.manifest)
    filled = [path for path in (files.rollouts, files.failures) if path.exists() and path.stat().st_size]
    if filled and overwrite:
        if previous is None:
            raise UsageError(
                f"{filled[0]} has content, but {files.manifest} is missing, so it is not known to be of a "
                "run; choose another -o, or remove it"
            )
        files.put_aside()
        previous, filled = None, []
    if filled and not resume:
        raise UsageError(
            f"{filled[0]} has rows already; continue that run (--resume), or choose another -o, or "
            "replace its files (--overwrite)"
        )
    if not filled:
        # A run that died before its first row may have left results and journals on the broker.
        same = previous is not None and previous.digest == manifest.digest
        try:
            manifest.save(files.manifest)
        except UsageError:  # the disk is full
            files.put_back()
            raise
        goes_on = resume and previous and same and not previous.differences(manifest)
        return Progress(previous if goes_on else None)
    if previous is None:
        raise UsageError(
            f"{files.rollouts} has rows, but {files.manifest} is missing, so their run is unknown; "
            "choose another -o"
        )
    if earlier_digest is not None:
        if found := obstacles(previous, manifest, earlier_digest):
            raise UsageError(f"{files.rollouts} cannot grow into this run: {'; '.join(found)}")
    else:
        _refuse_differences(files, previous, manifest)
    progress = Progress(previous)
    # Before the manifest is saved: rows that cannot be read must leave everything as it was.
    progress.read(files, metrics, retry_failed=retry_failed)
    if tasks is not None and previous.rollouts != manifest.rollouts:
        progress.refuse_lone(tasks())
        # Of a run that has grown: further repeats go between the old lines.
        write_whole(files.materialized_inputs, (materialize(task) + b"\n" for task in tasks()))
    manifest.save(files.manifest)
    return progress


def _refuse_differences(files: OutputFiles, previous: Manifest, manifest: Manifest) -> None:
    changed = previous.differences(manifest)
    if previous.digest != manifest.digest:
        rows = f" ({counted(previous.rows, 'row')}, now {manifest.rows})"
        changed.append(f"the input rows changed{rows if previous.rows != manifest.rows else ''}")
    if changed:
        larger = "; --resume --extend makes the run larger" if grows(previous, manifest) else ""
        raise UsageError(
            f"{files.rollouts} was started with other settings: {'; '.join(changed)}. "
            f"Go on with the same, or choose another -o{larger}"
        )


def grows(previous: Manifest, now: Manifest) -> bool:
    """Whether a run is asked for more than before, and for nothing else."""
    return previous.rollouts < now.rollouts and not obstacles(previous, now, previous.digest)


def obstacles(previous: Manifest, now: Manifest, earlier_digest: str) -> list[str]:
    """Why a run cannot go on as a larger one; empty if it can."""
    found = previous.differences(now, but=GROWING)
    found += _fewer(previous, now)
    if previous.rows > now.rows:
        found.append(f"it had {counted(previous.rows, 'row')}, now it has {now.rows:,}: a run only grows")
    elif earlier_digest != previous.digest:
        found.append(
            f"its {counted(previous.rows, 'row is', 'rows are')} not the first of these {now.rows:,} with "
            "the same numbers; put further rows after them"
        )
    return found


def _fewer(previous: Manifest, now: Manifest) -> list[str]:
    """What is wrong with the repeats of an environment that has fewer than before."""
    before, after = _repeats(previous), _repeats(now)
    return [
        f"repeats was {before[name]}, is {after[name]}: a run only grows"
        for name in before
        if before[name] > after.get(name, before[name])
    ][:1]


def _repeats(manifest: Manifest) -> dict[str, int]:
    """The repeats of each environment: one number for all, or one for each."""
    given: int | dict[str, int] = manifest.settings.get("repeats") or 1
    environments: dict[str, int] = manifest.settings.get("environments") or {}
    return given if isinstance(given, dict) else dict.fromkeys(environments, given)


def read_collected(files: OutputFiles, run: str, metrics: Metrics) -> KeyCounts:
    """The rollouts that an earlier ``collect`` of a run has written; they are taken into the metrics.

    Each rollout of a published run has one record, with a verdict or without, so only the others are missing.

    Raises:
        UsageError: a row belongs to another run, or is not a rollout row.
    """
    had = KeyCounts()
    for path in (files.rollouts, files.failures):
        if path.exists():
            repair_tail(path)
        for sample, _, number in samples_of(path):
            found = sample.rollout_id.split(".")[0]
            if found != run:
                raise UsageError(
                    f"{path}:{number} is of {f'run {found!r}' if found else 'no run that is known'}, not of "
                    f"'{run}'; choose another -o"
                )
            if had.increase(*sample.key) == 1:
                metrics.add_sample(sample)
    return had
