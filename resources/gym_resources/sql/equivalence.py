"""When one result says what another does: Spider 2.0's rule.

Every wanted column is among the given ones, whatever its name and place; further columns do no harm.
Source: github.com/xlang-ai/Spider2, ``evaluate.py``, ``compare_pandas_table`` (MIT).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gym_resources.sql.query import Table

TOLERANCE = 1e-2


def holds(wanted: Table, given: Table, *, columns: Sequence[int] = (), ignore_order: bool = False) -> bool:
    """Whether each wanted column (or each of ``columns``, counted from 0) equals a given one.

    Columns are equal if their values are, row by row; with ``ignore_order``, in any order of each column's
    own. Numbers may differ by `TOLERANCE`; missing values and NaN are equal to each other; no number equals
    a text. Where nothing is wanted nothing may be given. Takes a comparison for each pair of columns.

    Raises:
        IndexError: there is no such column.
    """
    needed = [wanted.columns[index] for index in columns] if columns else wanted.columns
    there = given.columns
    if ignore_order:
        needed = [sorted(column, key=_order) for column in needed]
        there = [sorted(column, key=_order) for column in there]
    if not needed:
        return not any(there)
    return all(any(_equal(column, other) for other in there) for column in needed)


def _equal(column: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(column) == len(other) and all(map(_same, column, other))


def _same(one: Any, other: Any) -> bool:
    if _missing(one) or _missing(other):
        return _missing(one) and _missing(other)
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, abs_tol=TOLERANCE)
    return type(one) is type(other) and one == other


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _order(value: Any) -> tuple[int, Any]:
    """Numbers by size (by their digits, 9.999 and 10.001 would lie far apart), then texts, bytes, missing."""
    if _missing(value):
        return 3, 0
    if isinstance(value, int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (2, value)
