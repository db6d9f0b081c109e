"""Records as a data frame, for notebooks and statistics."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from gym_runtime.errors import UsageError
from gym_runtime.messages.outcomes import RolloutRecord

LIBRARIES = ("pandas", "polars")
_FIELDS = (
    *("run", "task_index", "rollout_index", "environment", "outcome", "ending", "reward"),
    *("attempt", "turns", "tool_calls", "duration_s", "worker"),
)


def frame(records: Iterable[RolloutRecord] | RolloutRecord) -> Any:
    """A data frame with one line per record, in their order: ``(records, columns)``.

    Its columns are what the record says of the rollout, where ``outcome`` is its type as text, and then the
    record's ``numbers``: components of the reward, tokens, numeric fields of the row. A value that a record
    does not have is missing, also the reward of a failed rollout. It is a data frame of pandas or polars,
    whichever is installed; with both, of the one that was imported before, else of pandas.

    Raises:
        UsageError: neither is installed, or these are no records.
    """
    lines = [_line(record) for record in ([records] if isinstance(records, RolloutRecord) else records)]
    names = dict.fromkeys((*_FIELDS, *(name for line in lines for name in line)))
    columns = {name: [line.get(name) for line in lines] for name in names}
    for library in sorted(LIBRARIES, key=lambda name: name not in sys.modules):
        try:
            make = import_module(library).DataFrame
        except ImportError:
            continue
        return make(columns)
    raise UsageError("gym_runtime.frame needs pandas or polars: pip install pandas")


def _line(record: object) -> dict[str, Any]:
    if not isinstance(record, RolloutRecord):
        raise UsageError(
            f"frame takes records of rollouts, and got a value of type {type(record).__name__}; "
            "'gym-runtime export FILE -o rows.parquet' makes a table of a result file"
        )
    # polars refuses a column of whole and other numbers.
    numbers = {name: float(value) for name, value in record.numbers.items()}
    known = {name: getattr(record, name) for name in _FIELDS}
    reward = None if record.reward is None else float(record.reward)
    return {**numbers, **known, "outcome": str(record.outcome.__struct_config__.tag), "reward": reward}
