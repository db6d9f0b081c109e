"""Profiles of the rewards: the statistics of each task's rollouts, with its row, as NeMo Gym has them.

They repeat every row of the inputs, so a run does not write them; ``gym-runtime profile`` makes them of its
files.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE
from gym_runtime.files import USAGE, Metrics, OutputFiles, Table, lines_of, samples_of
from msgspec import Raw

_NUMBERS = ("_ng_task_index", "_ng_rollout_index")


class _Numbered(msgspec.Struct, frozen=True):
    task_index: int = msgspec.field(name="_ng_task_index")


_decode_number = msgspec.json.Decoder(_Numbered).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


def metrics_of(
    files: OutputFiles, *, failures_as_zero: bool = False, torn: list[Path] | None = None
) -> Metrics:
    """The metrics of a run's files. Of several rows of a rollout the first counts, of failures the last.

    Args:
        failures_as_zero: failed rollouts count as those with a reward of 0.
        torn: as for `gym_runtime.files.samples_of`.

    Raises:
        UsageError: a line is no rollout row.
    """
    metrics, judged = Metrics(failures_as_zero=failures_as_zero), set[tuple[int, int]]()
    for sample, _, _ in samples_of(files.rollouts, torn):
        if sample.key not in judged:
            metrics.add_sample(sample)
            judged.add(sample.key)
    failures = samples_of(files.failures, torn)
    failed = {sample.key: sample for sample, _, _ in failures if sample.key not in judged}
    for sample in failed.values():
        metrics.add_sample(sample)
    return metrics


def reward_profiles(materialized_inputs: Path, metrics: Metrics, torn: list[Path]) -> Iterator[bytes]:
    """The lines of ``_reward_profiling.jsonl``, in the order of the inputs.

    The inputs may end early, where a run was interrupted; a rollout not yet requested is not missing.
    ``torn`` gets their path where the last line does not count, as in `metrics_of`.
    """
    numbers = array("q", _task_indices(materialized_inputs, torn))
    # Sorted, so that the lines of a task are counted by two bisections.
    expected = array("q", sorted(numbers))
    ordered = [(one.table, one.table.order()) for one in metrics.agents.values()]
    written = set[int]()
    for task_index, (_, line) in zip(numbers, lines_of(materialized_inputs), strict=False):
        if task_index in written:
            continue
        written.add(task_index)
        for table, order in ordered:
            positions = _slice(order, table.task_indices, task_index)
            if positions:
                count = bisect_right(expected, task_index) - bisect_left(expected, task_index)
                count = max(count, len(positions))
                yield _encode(_profile(line, task_index, table, positions, count)) + b"\n"


def _task_indices(materialized_inputs: Path, torn: list[Path]) -> Iterator[int]:
    for _, line in lines_of(materialized_inputs):
        try:
            yield _decode_number(line).task_index
        except UNREADABLE:
            if line.endswith(b"\n"):
                raise
            torn.append(materialized_inputs)


def _slice(order: array[int], task_indices: array[int], task_index: int) -> array[int]:
    """The positions of one task, out of all positions sorted by task."""
    by_task = task_indices.__getitem__
    return order[bisect_left(order, task_index, key=by_task) : bisect_right(order, task_index, key=by_task)]


def _profile(
    line: bytes, task_index: int, table: Table, positions: Sequence[int], expected: int
) -> dict[str, Any]:
    sample = {name: value for name, value in _decode_fields(line).items() if name not in _NUMBERS}
    return {
        "_ng_task_index": task_index,
        **table.statistics(positions),
        "num_rollouts": len(positions),
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - len(positions),
        "reward_profile_completion_pct": 100.0 * len(positions) / expected,
        "rollout_infos": [_rollout_info(task_index, table, position) for position in positions],
        "sample": sample,
    }


def _rollout_info(task_index: int, table: Table, position: int) -> dict[str, Any]:
    rollout_index = table.rollout_indices[position]
    info: dict[str, Any] = {
        "rollout_id": f"{task_index}:{rollout_index}",
        "_ng_task_index": task_index,
        "_ng_rollout_index": rollout_index,
        "reward": table.columns["reward"][position],
    }
    for name, column in table.columns.items():
        value = column[position]
        # Not true of NaN, which stands for a missing value.
        if value == value:
            info[name] = int(value) if name in USAGE else value
    return info
