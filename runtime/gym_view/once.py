"""The rows of a file from which figures or data are made: each rollout once, and what does not count is said.

A rollout is given by its environment, task and repeat; its first row counts, as for ``run --resume``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE
from gym_runtime.files import TORN
from gym_runtime.plurals import counted

from gym_view.index import IndexedRow
from gym_view.index_entry import OUTCOMES, DoubledRows
from gym_view.indexing import indexed

NO_ROW = "the row is no JSON object in UTF-8"
_PIECE_BYTES = 2**16
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def rollouts_once(rows: Path) -> Iterator[IndexedRow]:
    """As `indexed`, without rows of rollouts that the file had before.

    At the end standard error says how many were left out, and whether the last line is not whole.
    """
    doubled = DoubledRows()
    again = end = 0
    for row in indexed(rows):
        end = row.offset + row.size
        if doubled.again(row.entry):
            again += 1
        else:
            yield row
    if again:
        _tell(f"{rows}: {counted(again, 'row is', 'rows are')} of a rollout that has one; the first counts")
    if _has_more(rows, end):
        _tell(f"{rows}: {TORN}")


def readable_once(rows: Path, left_out: Counter[str]) -> Iterator[IndexedRow]:
    """As `rollouts_once`, without lines that are no JSON object, which are counted in ``left_out``."""
    for row in rollouts_once(rows):
        if OUTCOMES[row.entry.outcome] == "unreadable":
            left_out[NO_ROW] += 1
        else:
            yield row


def rows_in_files(files: Sequence[Path], left_out: Counter[str]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The result rows of some files, with their file, each rollout of a file once; as `rollouts_once`.

    Args:
        left_out: counts the lines that cannot be read.
    """
    for path in files:
        with path.open("rb") as file:
            for row in readable_once(path, left_out):
                file.seek(row.offset)
                try:
                    found = _decode(file.read(row.size))
                except UNREADABLE:
                    left_out[NO_ROW] += 1
                else:
                    yield path, found


def _has_more(rows: Path, end: int) -> bool:
    """Whether anything but blank lines stands after the last whole row."""
    with rows.open("rb") as file:
        file.seek(end)
        while piece := file.read(_PIECE_BYTES):
            if piece.strip():
                return True
    return False


def _tell(line: str) -> None:
    from gym_runtime.cli import terminal

    terminal.note(line)
