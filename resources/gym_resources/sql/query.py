"""One query, executed within limits."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gym_resources.sql.database import reading

STEPS_BETWEEN_LOOKS = 10_000
MAX_CELLS = 1_000_000
MAX_BYTES = 100_000_000
Value = Any
"""``None``, an ``int``, ``float``, ``str`` or ``bytes``."""


class QueryFailed(Exception):
    """The query cannot be executed, takes too long, or gives too much; the message names the reason."""


class Table(msgspec.Struct, frozen=True):
    """A result, column by column; ``columns[i][j]`` is the value of column i in row j.

    A result without rows in the dataset has no columns.
    """

    columns: list[list[Value]]

    @property
    def height(self) -> int:
        """How many rows there are."""
        return len(self.columns[0]) if self.columns else 0


def execute(database: Path | str, sql: str, timeout_s: float) -> Table:
    """The result of a single statement on a database: a file, or the SQL text of one.

    Raises:
        QueryFailed: SQLite refuses it, it takes more than ``timeout_s`` seconds of the processor, or its
            result has more than `MAX_CELLS` values or `MAX_BYTES` bytes of text.
    """
    with reading(database) as connection:
        end = time.process_time() + timeout_s
        connection.set_progress_handler(lambda: time.process_time() > end, STEPS_BETWEEN_LOOKS)
        try:
            return _fetched(connection.execute(sql))
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            if time.process_time() > end:
                raise QueryFailed(f"it took longer than {timeout_s:g} s") from error
            raise QueryFailed(f"{type(error).__name__}: {error}"[:300]) from error


def _fetched(cursor: sqlite3.Cursor) -> Table:
    width = len(cursor.description or ())
    if not width:
        raise QueryFailed("it gives no result")
    rows: list[Sequence[Value]] = []
    size_bytes = 0
    for row in cursor:
        rows.append(row)
        size_bytes += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(rows) * width > MAX_CELLS or size_bytes > MAX_BYTES:
            raise QueryFailed(f"its result has more than {MAX_CELLS} values or {MAX_BYTES} bytes")
    return Table(_columns(rows, width))


def table(rows: Sequence[list[Value] | dict[str, Value]]) -> Table:
    """A result from its rows: lists of values, or objects with the same columns.

    Raises:
        ValueError: the rows do not have the same columns.
    """
    names = list(rows[0]) if rows and isinstance(rows[0], dict) else []
    plain: list[list[Value]] = []
    for row in rows:
        if isinstance(row, dict):
            if row.keys() != set(names):
                raise ValueError("the rows of a result name different columns")
            plain.append([row[name] for name in names])
        else:
            plain.append(row)
    width = len(plain[0]) if plain else 0
    if any(len(row) != width for row in plain):
        raise ValueError("the rows of a result have different lengths")
    return Table(_columns(plain, width))


def _columns(rows: Sequence[Sequence[Value]], width: int) -> list[list[Value]]:
    return [[row[index] for row in rows] for index in range(width)]
