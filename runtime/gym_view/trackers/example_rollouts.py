"""A few rollouts of a run as examples: of every environment and every kind of ending, of different tasks.

Which ones does not depend on the order in which they come. Most records are passed over without a look at
their text.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import RolloutRecord, readable_items
from gym_runtime.plurals import counted

MOST_ROWS = 100
MOST_STRATA = 200
CHARACTERS = 2000
MOST_ROW_BYTES = 2**20
"""Larger rows are not taken apart: that would hold up the loop that collects records."""
COLUMNS = (
    *("environment", "task", "rollout", "outcome", "reward"),
    *("turns", "tool_calls", "prompt", "answer", "failure"),
)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Examples:
    """Keeps at most `MOST_ROWS` records of each stratum: an environment and an ending."""

    def __init__(self) -> None:
        self._strata: dict[tuple[str, str], dict[int, tuple[int, list[Any]]]] = {}

    def add(self, record: RolloutRecord) -> None:
        """Take a record in, if it is to be an example."""
        key = record.environment, _ending(record)
        if key not in self._strata and len(self._strata) >= MOST_STRATA:
            return
        stratum = self._strata.setdefault(key, {})
        # A number that depends on nothing but the rollout's place; the lowest stay, one of each task.
        rank = zlib.crc32(b"%d.%d" % (record.task_index, record.rollout_index))
        known = stratum.get(record.task_index)
        if known is not None and known[0] <= rank:
            return
        if known is None and len(stratum) >= MOST_ROWS:
            last = max(stratum, key=lambda task: stratum[task][0])
            if stratum[last][0] <= rank:
                return
            del stratum[last]
        stratum[record.task_index] = rank, _cells(record)

    def rows(self) -> list[list[Any]]:
        """The examples, from each stratum the same number as far as it has them; cells as in `COLUMNS`."""
        strata = [stratum for _, stratum in sorted(self._strata.items())]
        ordered = [sorted(stratum.values(), key=lambda one: one[0]) for stratum in strata]
        taken = [one for turn in zip_longest(*ordered) for one in turn if one is not None]
        return sorted((cells for _, cells in taken[:MOST_ROWS]), key=lambda cells: (cells[0], cells[1]))


def _ending(record: RolloutRecord) -> str:
    """The reward in steps of a tenth; without one, the outcome."""
    if record.reward is None:
        return str(record.outcome.__struct_config__.tag)
    return f"{min(max(record.reward, -1.0), 2.0):.1f}"


def _cells(record: RolloutRecord) -> list[Any]:
    fault = getattr(record.outcome, "fault", None)
    prompt, answer = _texts(record)
    return [
        record.environment,
        record.task_index,
        record.rollout_index,
        record.outcome.__struct_config__.tag,
        record.reward,
        record.turns,
        record.tool_calls,
        prompt,
        answer,
        fault.message[:CHARACTERS] if fault is not None else "",
    ]


def _texts(record: RolloutRecord) -> tuple[str, str]:
    """The last words of the user, and of the model."""
    if len(record.row) > MOST_ROW_BYTES:
        return "", f"(a row of {counted(len(record.row), 'byte')})"
    try:
        items = list(readable_items(_decode(record.row)))
    except UNREADABLE:
        return "", ""

    def last(who: str) -> Iterator[str]:
        return (item.text for item in reversed(items) if item.who == who)

    return next(last("user"), "")[:CHARACTERS], next(last("assistant"), "")[-CHARACTERS:]
