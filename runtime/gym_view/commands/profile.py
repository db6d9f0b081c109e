"""``profile``: statistics of each task's rollouts, in a file beside a run's results."""

from __future__ import annotations

from pathlib import Path

from gym_runtime.cli import FailuresAsZero, terminal
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files import TORN, OutputFiles, write_whole

from gym_view.reward_profiles import metrics_of, reward_profiles
from gym_view.run_files import one_file


def profile(rollouts: Path, /, *, failures_as_zero: FailuresAsZero = False) -> int:
    """Write the statistics of each task's rollouts, with its row, beside a run's results.

    The file is OUT_reward_profiling.jsonl, as NeMo Gym has it. A run does not write it, because it repeats
    every row of the inputs.

    Args:
        rollouts: Rollouts of a run, or a folder with one run.
    """
    files = OutputFiles.beside(one_file(rollouts))
    inputs = files.materialized_inputs
    if not inputs.is_file():
        raise UsageError(f"there is no file {inputs}, which has the rows that were asked for: put it there")
    torn: list[Path] = []
    with files.lock():
        metrics = metrics_of(files, failures_as_zero=failures_as_zero, torn=torn)
        try:
            write_whole(files.reward_profiling, reward_profiles(inputs, metrics, torn))
        except UNREADABLE as error:
            raise UsageError(f"{inputs} is no file of materialized inputs: {error}") from None
    for path in torn:
        terminal.note(f"{path}: {TORN}")
    terminal.say(f"reward profiling  {files.reward_profiling}")
    return 0
