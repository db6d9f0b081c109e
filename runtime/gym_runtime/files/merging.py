"""Result files of several runs as those of one: each rollout's row once, metrics computed again.

Rollouts are told apart by their numbers (``_ng_task_index``, ``_ng_rollout_index``), so the files must be of
the same rows: several parts of one run, or runs whose rows bring numbers of their own. A rollout that failed
in one file and has a row in another is no failure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from gym_runtime.errors import UsageError
from gym_runtime.files.benchmark_scores import benchmark_scores
from gym_runtime.files.inputs import StoredInputs
from gym_runtime.files.keys import KeyCounts
from gym_runtime.files.profile import reward_profiles
from gym_runtime.files.results import OutputFiles, write_whole
from gym_runtime.files.resume import lines_of, sample_of
from gym_runtime.files.run_metrics import Metrics


class Merged(msgspec.Struct, frozen=True):
    """What became of the files.

    Attributes:
        repeated: rows that stood in more than one place, all alike.
        recovered: rollouts that failed in one file and have a row in another.
    """

    rows: int
    repeated: int
    recovered: int


def merge(paths: Sequence[Path], output: OutputFiles, metrics: Metrics) -> Merged:
    """Write the files of ``output`` from those of several runs. Hold its `Lock` while you call it.

    Rows stand in the order of the files. Failures of rollouts without a row are kept, each line once. There
    is no manifest: what is merged cannot be resumed.

    Args:
        paths: the rollouts of each run; the other files are looked for beside them.
        metrics: takes in what there is.

    Raises:
        UsageError: a file cannot be read or has a line that is no rollout's, or two different rows have the
            same numbers; the message names the places. Nothing was written or removed.
    """
    runs = [OutputFiles.beside(path) for path in paths]
    done = KeyCounts()
    seen = 0
    for run in runs:
        for number, line in lines_of(run.rollouts):
            sample = sample_of(run.rollouts, number, line)
            done.increase(sample.task_index, sample.rollout_index)
            if done.get(sample.task_index, sample.rollout_index) == 1:
                metrics.add_sample(sample)
            seen += 1
    failures = [run.failures for run in runs if run.failures.exists()]
    failed = _count_failures(failures, done)
    inputs = [run.materialized_inputs for run in runs if run.materialized_inputs.exists()]
    # Both are open from here on, so that a file may be merged into itself although its name is removed.
    with StoredInputs([run.rollouts for run in runs]) as rows, StoredInputs(inputs) as asked:
        for path in output.all():
            path.unlink(missing_ok=True)
        write_whole(output.rollouts, (line + b"\n" for line in rows.lines()))
        if len(failed):
            write_whole(output.failures, _failures(failures, done, failed, metrics))
        if inputs:
            write_whole(output.materialized_inputs, (line + b"\n" for line in asked.lines()))
    metrics.scores = benchmark_scores(output.rollouts, metrics.agents)
    write_whole(output.aggregate_metrics, metrics.aggregate())
    if inputs:
        write_whole(output.reward_profiling, reward_profiles(output.materialized_inputs, metrics))
    recovered = sum(1 for _ in _recovered(failures, done))
    return Merged(rows=len(done), repeated=seen - len(done), recovered=recovered)


def _count_failures(paths: Sequence[Path], done: KeyCounts) -> KeyCounts:
    """How many different failures each rollout without a row has."""
    times = KeyCounts()
    for _, _, key in _without_a_row(paths, done):
        times.increase(*key)
    return times


def _failures(paths: Sequence[Path], done: KeyCounts, times: KeyCounts, metrics: Metrics) -> Iterator[bytes]:
    """The lines of the merged failures; the last one of a rollout enters the metrics."""
    left = KeyCounts()
    for key, count in times.items():
        left.put(*key, count)
    for place, line, key in _without_a_row(paths, done):
        left.put(*key, left.get(*key) - 1)
        if not left.get(*key):
            metrics.add_sample(sample_of(*place, line))
        yield line + b"\n"


def _without_a_row(
    paths: Sequence[Path], done: KeyCounts
) -> Iterator[tuple[tuple[Path, int], bytes, tuple[int, int]]]:
    """Each different failure of a rollout that has no row: its place, its line, its numbers."""
    had: set[bytes] = set()
    for path in paths:
        for number, line in lines_of(path):
            sample = sample_of(path, number, line)
            key = (sample.task_index, sample.rollout_index)
            digest = hashlib.blake2b(line.strip(), digest_size=16).digest()
            if key not in done and digest not in had:
                had.add(digest)
                yield (path, number), line.strip(), key


def _recovered(paths: Sequence[Path], done: KeyCounts) -> Iterator[tuple[int, int]]:
    had = KeyCounts()
    for path in paths:
        for number, line in lines_of(path):
            sample = sample_of(path, number, line)
            key = (sample.task_index, sample.rollout_index)
            if key in done and had.increase(*key) == 1:
                yield key


def refuse_missing(paths: Sequence[Path]) -> None:
    """
    Raises:
        UsageError: one of the files is not there, or is named twice.
    """
    for position, path in enumerate(paths):
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        if any(path.resolve() == other.resolve() for other in paths[:position]):
            raise UsageError(f"{path} is named twice")
