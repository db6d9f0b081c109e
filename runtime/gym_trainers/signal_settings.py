"""The settings of `gym_signal.signal_batches` in trainers; what a trainer decides itself is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE, UsageError

from gym_trainers.training_rollouts import ROW

WEIGHTS = (
    "groups that were likelier to be stopped count several times, and {trainer}, which computes advantages "
    "itself, cannot weight a group"
)


def require_not(options: Mapping[str, Any], trainer: str, **why: str) -> None:
    """Refuse settings that are the trainer's, or need what it does not do.

    Raises:
        UsageError: one of them is given, and the message says ``why``.
    """
    for name, reason in why.items():
        if options.get(name):
            raise UsageError(f"signal takes no {name} here: {reason.format(trainer=trainer)}")


def signal_rows(options: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """The rows that settings name, as text, and the other settings.

    Args:
        options: with ``rows``: what `dataset_rows` returned, or the path of the dataset's JSONL file.

    Raises:
        UsageError: there are no rows, or a line cannot be read.
    """
    others = dict(options)
    given: Any = others.pop("rows", ())
    if isinstance(given, str | Path):
        given = _lines(Path(given))
    rows = [one if isinstance(one, str) else str(one[ROW]) for one in given]
    if not rows:
        raise UsageError('signal needs rows: {"rows": "train.jsonl", …}, the rows that are trained on')
    return rows, others


def _lines(path: Path) -> Iterable[Mapping[str, str]]:
    try:
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in path.read_bytes().splitlines()]
    except (OSError, *UNREADABLE) as error:
        raise UsageError(f"signal's rows, {path}, cannot be read: {error}") from error
