"""Blending: shares, order, samples."""

from __future__ import annotations

from collections import Counter

import pytest
from gym_data.prepare.collate import blend, interleave, quotas, take
from gym_runtime.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**32)
SHARES = st.lists(st.integers(0, 40), min_size=1, max_size=5)
WEIGHTS = st.floats(0.01, 100)


@given(st.data(), st.lists(st.integers(1, 200), min_size=1, max_size=5), st.integers(1, 500))
def test_shares_add_up_and_keep_the_weights(data: st.DataObject, counts: list[int], size: int) -> None:
    weights = data.draw(st.lists(WEIGHTS, min_size=len(counts), max_size=len(counts)))
    shares = quotas(counts, weights, size)
    assert sum(shares) == size
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share - size * weight / sum(weights)) < 1


@given(st.data(), st.lists(st.integers(1, 200), min_size=1, max_size=5))
def test_without_a_size_no_row_comes_twice(data: st.DataObject, counts: list[int]) -> None:
    weights = data.draw(st.lists(WEIGHTS, min_size=len(counts), max_size=len(counts)))
    shares = quotas(counts, weights)
    assert all(share <= count for share, count in zip(shares, counts, strict=True))
    assert quotas(counts) == counts


def test_generators_have_no_end() -> None:
    assert quotas([None], size=7) == [7]
    assert quotas([10, None], [1, 2]) == [10, 20]
    assert quotas([10, None], size=20) == [10, 10]
    with pytest.raises(UsageError, match="--size N"):
        quotas([None])
    with pytest.raises(UsageError, match="--size N"):
        quotas([10, None])


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_is_above_zero(weight: float) -> None:
    with pytest.raises(UsageError, match="must be above 0"):
        quotas([1, 1], [1.0, weight])


@given(SHARES, SEEDS)
def test_each_source_comes_as_often_as_its_share(shares: list[int], seed: int) -> None:
    order = list(interleave(shares, seed))
    assert Counter(order) == Counter({i: share for i, share in enumerate(shares) if share})
    assert order == list(interleave(shares, seed))


@given(st.integers(1, 30), st.integers(0, 100), SEEDS)
def test_taking_gives_whole_passes_and_a_sample_in_order(count: int, share: int, seed: int) -> None:
    rows = range(count)
    taken = list(take(rows, count, share, seed))
    assert len(taken) == share
    passes, rest = divmod(share, count)
    assert taken[: passes * count] == list(rows) * passes
    sample = taken[passes * count :]
    assert sample == sorted(set(sample))
    assert len(sample) == rest
    assert taken == list(take(rows, count, share, seed))


@given(SHARES, SEEDS)
def test_every_row_of_a_blend_is_one_that_went_in(shares: list[int], seed: int) -> None:
    sources = [[(i, n) for n in range(share)] for i, share in enumerate(shares)]
    blended = list(blend([iter(source) for source in sources], shares, seed))
    for i, source in enumerate(sources):
        assert [row for number, row in blended if number == i] == source


def test_another_seed_gives_another_order() -> None:
    orders = {tuple(interleave([20, 20], seed)) for seed in range(10)}
    assert len(orders) == 10
