"""One query, executed within limits."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec

from gym_resources.sql.database import reading

STEPS_BETWEEN_LOOKS = 10_000
MAX_CELLS = 2_000_000
Value = Any
"""``None``, an ``int``, ``float``, ``str`` or ``bytes``."""


class QueryFailed(Exception):
    """The query cannot be executed, takes too long, or gives too much; the message says which."""


class Table(msgspec.Struct, frozen=True):
    """A result, column by column; ``columns[i][j]`` is the value of column i in row j."""

    columns: list[list[Value]]


def execute(path: Path, sql: str, timeout_s: float) -> Table:
    """The result of a single statement on a database.

    Raises:
        QueryFailed: SQLite refuses it, it takes longer than ``timeout_s`` seconds, or its result has more
            than `MAX_CELLS` values.
    """
    with reading(path) as connection:
        end = time.monotonic() + timeout_s
        connection.set_progress_handler(lambda: time.monotonic() > end, STEPS_BETWEEN_LOOKS)
        try:
            cursor = connection.execute(sql)
            width = len(cursor.description or ())
            rows = cursor.fetchmany(MAX_CELLS // max(width, 1) + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            if time.monotonic() > end:
                raise QueryFailed(f"it took longer than {timeout_s:g} s") from None
            raise QueryFailed(f"{type(error).__name__}: {error}"[:300]) from error
    if not width:
        raise QueryFailed("it gives no result")
    if len(rows) * width > MAX_CELLS:
        raise QueryFailed(f"its result has more than {MAX_CELLS} values")
    return Table(_columns(rows, width))


def table(rows: list[Any]) -> Table:
    """A result that is given by its rows: lists of values, or objects that name the columns alike.

    Raises:
        ValueError: the rows do not have the same columns.
    """
    plain: list[list[Any]] = []
    for row in rows:
        if isinstance(row, dict) and isinstance(rows[0], dict) and row.keys() != rows[0].keys():
            raise ValueError("the rows of a result name different columns")
        plain.append([row[name] for name in rows[0]] if isinstance(row, dict) else row)
    width = len(plain[0]) if plain else 0
    if any(len(row) != width for row in plain):
        raise ValueError("the rows of a result have different lengths")
    return Table(_columns(plain, width))


def _columns(rows: list[Any], width: int) -> list[list[Value]]:
    return [[row[index] for row in rows] for index in range(width)]
