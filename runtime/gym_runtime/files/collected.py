"""What an earlier ``collect`` of the same run has written, so that the next one goes on with its files.

Each rollout of a published run has one record, with a verdict or without. So every rollout in the files is
had, and only the rest is appended.
"""

from __future__ import annotations

import msgspec

from gym_runtime.errors import UsageError
from gym_runtime.files.appender import repair_tail
from gym_runtime.files.keys import KeyCounts
from gym_runtime.files.results import OutputFiles
from gym_runtime.files.resume import lines_of, sample_of
from gym_runtime.files.run_metrics import Metrics


class _About(msgspec.Struct, frozen=True):
    rollout_id: str = ""


class _Row(msgspec.Struct, frozen=True):
    about: _About = msgspec.field(name="_gym", default=_About())


_decode = msgspec.json.Decoder(_Row).decode


def read_collected(files: OutputFiles, run: str, metrics: Metrics) -> KeyCounts:
    """The rollouts of a run that the files have; they are taken into the metrics.

    Raises:
        UsageError: a row belongs to another run, or is not a rollout row.
    """
    had = KeyCounts()
    for path in (files.rollouts, files.failures):
        if path.exists():
            repair_tail(path)
        for number, line in lines_of(path):
            sample = sample_of(path, number, line)
            found = _decode(line).about.rollout_id.split(".")[0]
            if found != run:
                raise UsageError(
                    f"{path}:{number} is of {f'run {found!r}' if found else 'no run that is known'}, not of "
                    f"'{run}'; choose another -o"
                )
            if had.increase(sample.task_index, sample.rollout_index) == 1:
                metrics.add_sample(sample)
    return had
