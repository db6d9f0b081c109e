"""Whether two queries give the same result on the data that stand in a question's schema."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import Literal

from gym_resources.sql.query import QueryFailed, execute
from gym_resources.sql.result_equality import holds

LIMIT_S = 5.0
_ORDERED = re.compile(r"\bORDER\s+BY\b", re.IGNORECASE)
_TABLES = (
    """SELECT replace(name, '"', '""') FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"""
)

Execution = Literal["same", "different", "failed", "undecided"]


def compared(schema: str, expected: str, given: str) -> Execution:
    """What executing two queries on a schema with data says.

    ``failed``: the given query cannot be executed, or takes more than `LIMIT_S` seconds of the processor.
    ``undecided``: SQLite does not understand the schema or the expected query, or this gives nothing but
    NULL and 0, as on tables without data; or the given query has more columns, or agrees on these data only,
    as one with the results written into it does: on every second row, the results differ. Results are
    compared by Spider 2.0's rule; their order counts where the expected query gives one. Runs what a model
    wrote, so it belongs in a process that can be killed.
    """
    ignore_order = not _ORDERED.search(expected)
    try:
        wanted = execute(schema, expected, LIMIT_S)
    except (QueryFailed, sqlite3.Error, sqlite3.Warning, ValueError):
        return "undecided"
    if not any(value for column in wanted.columns for value in column):
        return "undecided"  # no rows, or a count or a sum of none: tables without data are alike
    try:
        found = execute(schema, given, LIMIT_S)
    except QueryFailed:
        return "failed"
    if not holds(wanted, found, ignore_order=ignore_order):
        return "different"
    if len(found.columns) > len(wanted.columns):
        return "undecided"
    try:
        for half in _halves(schema):
            wanted, found = (execute(half, query, LIMIT_S) for query in (expected, given))
            if not holds(wanted, found, ignore_order=ignore_order):
                return "undecided"
    except (QueryFailed, sqlite3.Error, sqlite3.Warning, ValueError):
        return "undecided"
    return "same"


def _halves(schema: str) -> Iterator[str]:
    """The schema with every second row of each table, and with the other rows."""
    [names] = execute(schema, _TABLES, LIMIT_S).columns
    for kept in (0, 1):
        rows = (f'DELETE FROM "{name}" WHERE rowid % 2 <> {kept};' for name in names)
        yield f"{schema}\n;\n{''.join(rows)}"
