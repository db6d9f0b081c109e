"""Whether two queries give the same result on the data that stand in a question's schema."""

from __future__ import annotations

import re
import sqlite3
from typing import Literal

from gym_resources.sql.query import QueryFailed, execute
from gym_resources.sql.result_equality import holds

LIMIT_S = 5.0
_ORDERED = re.compile(r"\bORDER\s+BY\b", re.IGNORECASE)

Execution = Literal["same", "different", "failed", "undecided"]


def compared(schema: str, expected: str, given: str) -> Execution:
    """What executing two queries on a schema with data says.

    ``failed``: the given query cannot be executed, or takes more than `LIMIT_S` seconds of the processor.
    ``undecided``: SQLite does not understand the schema or the expected query, or this gives nothing but
    NULL and 0, as on tables without data. Results are compared by Spider 2.0's rule; their order counts where
    the expected query gives one. Runs what a model wrote, so it belongs in a process that can be killed.
    """
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
    return "same" if holds(wanted, found, ignore_order=not _ORDERED.search(expected)) else "different"
