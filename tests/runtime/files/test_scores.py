"""Statistics and pass@k against the long way round."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
from gym_runtime.files.scores import PassScores, describe, group_pass, steps
from hypothesis import given
from hypothesis import strategies as st

REWARDS = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=8)


@given(REWARDS, st.integers(1, 8))
def test_pass_at_k_is_the_share_of_all_draws(rewards: list[float], k: int) -> None:
    k = min(k, len(rewards))
    draws = list(itertools.combinations(rewards, k))
    assert group_pass(rewards, k) == pytest.approx(sum(map(max, draws)) / len(draws))


def test_partial_rewards_take_the_best_of_the_first() -> None:
    assert group_pass([0.0, 0.5, 1.0], 2) == 0.5
    assert group_pass([-1.0, -0.5], 1) == -1.0


@given(st.lists(st.lists(st.floats(-2, 2), min_size=1, max_size=6), min_size=1, max_size=6))
def test_scores_over_groups_by_their_definition(groups: list[list[float]]) -> None:
    ks = [1, 2, 4]
    scores = PassScores(ks)
    for group in groups:
        scores.add(group)
    for k in ks:
        large = [group_pass(group, k) for group in groups if len(group) >= k]
        assert (k in scores.pass_at) == bool(large)
        if large:
            assert scores.pass_at[k] == pytest.approx(statistics.fmean(large))
        means = [statistics.fmean(group[:k]) for group in groups]
        assert scores.mean_of_first[k] == pytest.approx(statistics.fmean(means))


@given(st.lists(st.tuples(st.lists(st.floats(0, 1), max_size=6), st.integers(1, 4)), max_size=6))
def test_equal_groups_are_taken_in_at_once(groups: list[tuple[list[float], int]]) -> None:
    at_once, one_by_one = PassScores([1, 2, 4]), PassScores([1, 2, 4])
    for group, times in groups:
        at_once.add(group, times)
        for _ in range(times):
            one_by_one.add(group)
    for name in ("pass_at", "pass_error", "pass_tasks", "mean_of_first", "mean_of_first_error", "tasks"):
        assert getattr(at_once, name) == getattr(one_by_one, name)
    for name in ("mean", "standard_error", "clusters", "count"):
        assert getattr(at_once.rewards, name) == getattr(one_by_one.rewards, name)


def test_no_groups_no_scores() -> None:
    scores = PassScores(steps(0))
    assert (scores.pass_at, scores.mean_of_first, scores.groups) == ({}, {}, 0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_descriptions_are_those_of_the_standard_library(values: list[float]) -> None:
    mean, most, least, median, spread = describe(values)
    assert mean == pytest.approx(statistics.fmean(values))
    assert (most, least) == (max(values), min(values))
    assert median == statistics.median(values)
    assert spread == pytest.approx(statistics.stdev(values), abs=1e-6)


def test_a_single_value_has_no_spread() -> None:
    assert describe([3.0]) == (3.0, 3.0, 3.0, 3.0, 0.0)


def test_steps() -> None:
    assert [steps(most) for most in (0, 1, 2, 3, 8)] == [[], [1], [1, 2], [1, 2, 3], [1, 2, 4, 8]]


def test_rewards_without_squares_have_a_deviation() -> None:
    assert describe([1.7e308, 1.0])[4] == pytest.approx(1.7e308 / math.sqrt(2))
