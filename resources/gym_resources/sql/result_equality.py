"""When one result equals another: Spider 2.0's rule.

Every wanted column is among the given ones, whatever its name and place; further columns do no harm.
Source: github.com/xlang-ai/Spider2, ``evaluate.py``, ``compare_pandas_table`` (MIT).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gym_resources.sql.query import Table

TOLERANCE = 1e-2


def holds(wanted: Table, given: Table, *, columns: Sequence[int] = (), ignore_order: bool = True) -> bool:
    """Whether each wanted column (or each of ``columns``, counted from 0) equals a given one.

    Columns are equal if their values are, row by row; with ``ignore_order``, after sorting each by the texts
    of its values. Missing values and NaN are 0, and a text that Python reads as a number is that number;
    numbers may differ by `TOLERANCE`. Two results without rows are equal, and only one without any never is.
    Columns that the wanted result does not have are ignored; if all named columns are ignored, every column
    counts. Takes a comparison for each pair of columns.
    """
    if not wanted.height or not given.height:
        return wanted.height == given.height
    width = len(wanted.columns)
    chosen = [index for index in columns if index < width] or list(range(width))
    needed = [_plain(wanted.columns[index], ignore_order) for index in chosen]
    there = [_plain(column, ignore_order) for column in given.columns]
    return all(any(_equal(column, other) for other in there) for column in needed)


def _plain(column: Sequence[Any], ignore_order: bool) -> list[Any]:
    values = [_value(value) for value in column]
    return sorted(values, key=_order) if ignore_order else values


def _value(value: Any) -> Any:
    if isinstance(value, str):
        value = _number(value)
    return 0 if value is None or (isinstance(value, float) and math.isnan(value)) else value


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _order(value: Any) -> tuple[str, bool]:
    return str(value), isinstance(value, int | float)


def _equal(column: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(column) == len(other) and all(map(_same, column, other))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        try:
            return math.isclose(one, other, abs_tol=TOLERANCE)
        except OverflowError:  # an integer that no float can hold
            return one == other
    return type(one) is type(other) and one == other
