"""``merge``: the result files of several parts of a run as those of one."""

from __future__ import annotations

from pathlib import Path

from gym_runtime.cli import result, terminal
from gym_runtime.cli.display import Tally
from gym_runtime.cli.options import AsJson, FailOnFailures, FailuresAsZero, RequiredOutput
from gym_runtime.errors import UsageError
from gym_runtime.files.merging import merge as merge_files
from gym_runtime.files.merging import refuse_missing
from gym_runtime.files.results import OutputFiles
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.files.sample import TORN
from gym_runtime.plurals import counted


def merge(
    *rollouts: Path,
    output: RequiredOutput,
    overwrite: bool = False,
    json: AsJson = False,
    failures_as_zero: FailuresAsZero = False,
    fail_on_failures: FailOnFailures = False,
) -> int:
    """Put the parts of a run, in several result files, together: one row per rollout, with new metrics.

    The failures and inputs beside each file come along, but for failures of rollouts that have a row in
    another file. Labels stay where they are, and there is no manifest: what is merged cannot be resumed.
    Rollouts are told apart by their numbers, so two different rows with the same numbers are refused.

    Args:
        rollouts: Result files, such as A.jsonl B.jsonl.
        output: The rollouts; further files are put beside it.
        overwrite: Replace existing files.
    """
    if len(rollouts) < 2:
        raise UsageError("merge needs two or more files: gym-runtime merge A.jsonl B.jsonl -o C.jsonl")
    refuse_missing(rollouts)
    files = OutputFiles.beside(output)
    for path in rollouts:
        files.refuse_inputs(*OutputFiles.beside(path).all())
    metrics = Metrics(failures_as_zero=failures_as_zero)
    with files.lock():
        there = [path for path in files.all() if path.exists() and path.stat().st_size]
        if there and not overwrite:
            raise UsageError(f"{there[0]} has content already; choose another -o, or --overwrite")
        merged = merge_files(rollouts, files, metrics)
    for path in merged.torn:
        terminal.note(f"{path}: {TORN}")
    if merged.repeated or merged.recovered:
        repeated = counted(merged.repeated, "row was", "rows were")
        recovered = counted(merged.recovered, "failed rollout has", "failed rollouts have")
        terminal.note(f"{repeated} in more than one file; {recovered} a row in another file")
    summary = metrics.summary()
    result.report(summary, files=files, tally=Tally(summary.rollouts, metrics), as_json=json)
    return result.status(summary, fail_on_failures=fail_on_failures)
