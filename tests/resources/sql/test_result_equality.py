from __future__ import annotations

from typing import Any

import pytest
from gym_resources.sql.query import Table, table
from gym_resources.sql.result_equality import holds

ROWS: list[Any] = [[1, "a", None], [2, "b", 0.5]]
NAN = float("nan")


@pytest.mark.parametrize(
    ("given", "same"),
    [
        (ROWS, True),
        ([[1.009, "a", None], [2, "b", 0.5]], True),
        ([[1.011, "a", None], [2, "b", 0.5]], False),
        ([["a", 7, NAN, 1], ["b", 7, 0.5, 2]], True),  # another place, and one more
        ([[1, "a"], [2, "b"]], False),
        ([["1", "a", None], [" 2.0 ", "b", "5e-1"]], True),  # a text that is a number is one
        ([[1, "a", 0], [2, "b", 0.5]], True),  # what is missing is 0
        ([[1, "a", "nan"], [2, "b", 0.5]], True),
        ([[1, "A", None], [2, "b", 0.5]], False),
        ([[1, b"a", None], [2, b"b", 0.5]], False),
        ([[2, "b", 0.5], [1, "a", None]], False),
        ([*ROWS, [3, "c", 1]], False),
        ([], False),
    ],
)
def test_every_wanted_column_must_be_there(given: list[Any], same: bool) -> None:
    assert holds(table(ROWS), table(given), ignore_order=False) is same


@pytest.mark.parametrize(
    ("wanted", "given", "same"),
    [
        (ROWS, ROWS[::-1], True),
        ([[1], [1], [2]], [[1], [2], [2]], False),
        ([[9], [10], [None], ["x"], [b"y"]], [["x"], [None], [10], [b"y"], [9]], True),
        ([["9"], ["10"]], [[10], [9]], True),
        # Columns are sorted by the text of their values: 10.001 comes before 9.999, as 10 does before 9.995.
        ([[9.999], [10.001]], [[10], [9.995]], True),
        ([[9.999], [20]], [[10], [20]], False),
        ([["9" * 400]], [["9" * 400]], True),
        ([["9" * 400]], [["9" * 399 + "8"]], False),
    ],
)
def test_order_does_not_matter_unless_it_is_said(wanted: list[Any], given: list[Any], same: bool) -> None:
    assert holds(table(wanted), table(given)) is same


@pytest.mark.parametrize(
    ("columns", "same"),
    [([1], True), ([0, 1], False), ([1, 3], True), ([3], False), ([], False), ([7, 1], True)],
)
def test_only_some_columns_may_be_wanted(columns: list[int], same: bool) -> None:
    assert holds(table(ROWS), table([["a"], ["b"]]), columns=columns) is same


@pytest.mark.parametrize("columns", [[], [0], [5]])
def test_results_without_rows_are_equal_to_each_other_only(columns: list[int]) -> None:
    empty = Table([[], []])
    for one in (table([]), empty):
        for other in (table([]), empty):
            assert holds(one, other, columns=columns)
        assert not holds(one, table(ROWS), columns=columns)
        assert not holds(table(ROWS), one, columns=columns)


def test_rows_may_be_objects() -> None:
    assert holds(table([{"n": 1, "s": "a"}, {"s": "b", "n": 2}]), table([[1, "a"], [2, "b"]]))
    with pytest.raises(ValueError, match="different columns"):
        table([{"n": 1}, {"s": "b"}])
    with pytest.raises(ValueError, match="different lengths"):
        table([[1], [1, 2]])
