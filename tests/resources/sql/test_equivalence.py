from __future__ import annotations

from typing import Any

import pytest
from gym_resources.sql.equivalence import holds
from gym_resources.sql.query import table

ROWS: list[Any] = [[1, "a", None], [2, "b", 0.5]]


@pytest.mark.parametrize(
    ("given", "same"),
    [
        (ROWS, True),
        ([[1.009, "a", None], [2, "b", 0.5]], True),
        ([[1.011, "a", None], [2, "b", 0.5]], False),
        ([["a", 7, float("nan"), 1], ["b", 7, 0.5, 2]], True),  # another place, and one more
        ([[1, "a"], [2, "b"]], False),
        ([["1", "a", None], ["2", "b", 0.5]], False),
        ([[1, "A", None], [2, "b", 0.5]], False),
        ([[1, b"a", None], [2, b"b", 0.5]], False),
        ([[2, "b", 0.5], [1, "a", None]], False),
        ([*ROWS, [3, "c", 1]], False),
        ([], False),
    ],
)
def test_every_wanted_column_must_be_there(given: list[Any], same: bool) -> None:
    assert holds(table(ROWS), table(given)) is same


def test_order_may_not_matter() -> None:
    assert holds(table(ROWS), table(ROWS[::-1]), ignore_order=True)
    assert holds(table([[9.999], [10.001]]), table([[10], [9.995]]), ignore_order=True)
    assert holds(
        table([[9], [10], [None], ["x"], [b"y"]]),
        table([["x"], [None], [10.0], [b"y"], [9.0]]),
        ignore_order=True,
    )
    assert not holds(table([[1], [1], [2]]), table([[1], [2], [2]]), ignore_order=True)


def test_only_some_columns_may_be_wanted() -> None:
    assert holds(table(ROWS), table([["a"], ["b"]]), columns=[1])
    assert not holds(table(ROWS), table([["a"], ["b"]]), columns=[0, 1])
    with pytest.raises(IndexError):
        holds(table(ROWS), table(ROWS), columns=[3])


def test_where_nothing_is_wanted_nothing_may_be_given() -> None:
    assert holds(table([]), table([]))
    assert not holds(table([]), table(ROWS))


def test_rows_may_be_objects() -> None:
    assert holds(table([{"n": 1, "s": "a"}, {"s": "b", "n": 2}]), table([[1, "a"], [2, "b"]]))
    with pytest.raises(ValueError, match="different columns"):
        table([{"n": 1}, {"s": "b"}])
    with pytest.raises(ValueError, match="different lengths"):
        table([[1], [1, 2]])
