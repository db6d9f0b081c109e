"""Statistics of any finite doubles: against exact fractions, against values by hand, and never an error."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction
from sys import float_info

import pytest
from gym_runtime.statistics import Clusters, Total, bounded, deviation, difference, mean
from hypothesis import example, given
from hypothesis import strategies as st

FINITE = st.floats(allow_nan=False, allow_infinity=False)
LARGEST = float_info.max


def clustered(groups: Sequence[Sequence[float]]) -> Clusters:
    clusters = Clusters()
    for group in groups:
        clusters.add(group)
    return clusters


def exact(values: Sequence[float]) -> Fraction:
    return sum(map(Fraction, values), Fraction()) / len(values)


@given(st.lists(FINITE, min_size=1))
@example([0.0, 0.0, 725928593306685.0, 9007199254740991.0, -5.045687702119003e16])
def test_the_mean_is_the_exact_one(values: list[float]) -> None:
    total = Total()
    for value in values:
        total.add(value)
    true = exact(values)
    assert total.mean == clustered([values]).mean == float(true)
    found = mean(values)
    assert found is not None
    # The sum is rounded, and the quotient: a half and at most one unit in the last place.
    assert abs(Fraction(found) - true) <= Fraction(3, 2) * Fraction(math.ulp(float(true)))


@given(st.lists(FINITE))
def test_no_order_changes_a_sum(values: list[float]) -> None:
    shuffled = sorted(values)
    one, other = Total(), Total()
    for value in values:
        one.add(value)
    for value in shuffled:
        other.add(value)
    assert one.mean == other.mean
    assert clustered([[v] for v in values]).deviation() == clustered([[v] for v in shuffled]).deviation()


@given(st.lists(FINITE, min_size=2))
def test_a_deviation_is_the_exact_one_or_undefined(values: list[float]) -> None:
    middle = exact(values)
    squares = sum(((Fraction(value) - middle) ** 2 for value in values), Fraction())
    for ddof in (0, 1):
        found, true = deviation(values, ddof), squares / (len(values) - ddof)
        if found is None:
            assert true > Fraction(LARGEST) ** 2
            assert ddof
        else:
            least = Fraction(math.ulp(max(map(abs, values))))  # what the plain way may lose
            assert abs(Fraction(found) - _root(true)) <= least + _root(true) / 10**9


def _root(square: Fraction) -> Fraction:
    """To 60 digits and more."""
    scale = 10**400
    return Fraction(math.isqrt(square.numerator * scale**2 // square.denominator), scale)


@pytest.mark.slow
@given(st.lists(st.lists(FINITE)))
def test_what_comes_out_is_finite_or_none(groups: list[list[float]]) -> None:
    clusters = clustered(groups)
    values = [value for group in groups for value in group]
    for found in (
        clusters.mean,
        clusters.standard_error,
        mean(values),
        deviation(values),
        deviation(values, 0),
    ):
        assert found is None or math.isfinite(found)
    assert (clusters.mean is None) == (not values)


def test_the_largest_doubles() -> None:
    assert mean([1e308, 1e308]) == 1e308
    assert mean([LARGEST] * 3) == LARGEST
    assert mean([LARGEST, -LARGEST, 3.0]) == 1.0
    assert deviation([LARGEST, -LARGEST]) is None
    assert deviation([LARGEST, -LARGEST], ddof=0) == LARGEST
    assert deviation([1e-200, 3e-200]) == pytest.approx(math.sqrt(2) * 1e-200)
    assert (difference(LARGEST, -LARGEST), difference(2.0, 0.5)) == (None, 1.5)
    assert (bounded(math.inf), bounded(-math.inf), bounded(0.5)) == (LARGEST, -LARGEST, 0.5)


def test_nothing_has_no_mean() -> None:
    assert mean([]) is deviation([]) is Total().mean is Clusters().mean is Clusters().standard_error is None
    assert Clusters().deviation() is None
    assert (deviation([3.0]), clustered([[3.0]]).deviation(), clustered([[3.0]]).standard_error) == (
        0.0,
        0.0,
        None,
    )


def test_totals_add_up_and_count_several_times() -> None:
    one, other = Total(), Total()
    one.add(0.25, times=3)
    other.add(1.25)
    both = one + other
    assert (both.count, both.mean) == (4, 0.5)


def test_a_standard_error_by_hand() -> None:
    # Of the tasks' means 0, 1, 0.5 and 0.5: the mean 0.5, squared distances 0.25 + 0.25, so the deviation is
    # sqrt(0.5 / 3), and the error that divided by sqrt(4).
    equal = clustered([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    assert equal.standard_error == pytest.approx(math.sqrt(0.5 / 3) / 2)
    # Two tasks, of one and three rewards: N = 4, m = 3 / 4. Residuals of their sums: 0 - 0.75 and 3 - 2.25.
    # sqrt(2 / 1 * (0.5625 + 0.5625)) / 4 = 0.375.
    assert clustered([[0.0], [1.0, 1.0, 1.0]]).standard_error == 0.375
    # The same eight rewards as if they were independent would seem surer than four tasks make them.
    repeated = [[float(k), float(k)] for k in (0, 1, 0, 1)]
    alone = clustered([[value] for group in repeated for value in group])
    assert clustered(repeated).standard_error == pytest.approx(math.sqrt(1 / 3) / 2)
    assert alone.standard_error == pytest.approx(math.sqrt(2 / 7) / math.sqrt(8))


@given(st.lists(st.lists(st.floats(-10, 10), min_size=3, max_size=3), min_size=2))
def test_of_tasks_of_one_size_it_is_that_of_their_means(groups: list[list[float]]) -> None:
    means = [statistics.fmean(group) for group in groups]
    true = statistics.stdev(means) / math.sqrt(len(groups))
    assert clustered(groups).standard_error == pytest.approx(true, rel=1e-9, abs=1e-12)
