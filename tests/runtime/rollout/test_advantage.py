"""Advantages, against the definitions written out."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from gym_runtime.errors import UsageError
from gym_runtime.rollout.groups import EPSILON, Advantage, advantages
from gym_runtime.statistics import mean
from hypothesis import example, given
from hypothesis import strategies as st

KINDS: tuple[Advantage, ...] = ("grpo", "dr_grpo", "rloo")
REWARDS = st.lists(st.none() | st.just(math.nan) | st.floats(-10, 10), max_size=12)


def scored(rewards: list[float | None]) -> list[float]:
    return [reward for reward in rewards if reward is not None and not math.isnan(reward)]


@given(st.floats(-1e9, 1e9), st.integers(1, 16))
@example(0.07, 6)
@example(858_540_000.07, 10)
def test_equal_rewards_have_no_advantage(reward: float, count: int) -> None:
    assert mean([reward] * count) == reward
    for kind in KINDS:
        assert advantages([reward] * count, kind) == [0.0] * count


@given(REWARDS)
def test_each_definition(rewards: list[float | None]) -> None:
    have = scored(rewards)
    for kind in KINDS:
        found = advantages(rewards, kind)
        assert len(found) == len(rewards)
        for reward, advantage in zip(rewards, found, strict=True):
            if reward is None or math.isnan(reward) or len(have) < 2:
                assert advantage == 0.0
                continue
            if kind == "rloo":
                expected = reward - (sum(have) - reward) / (len(have) - 1)
            else:
                expected = reward - statistics.fmean(have)
            if kind == "grpo":
                expected /= statistics.stdev(have) + EPSILON
            assert advantage == pytest.approx(expected, abs=1e-6, rel=1e-6)


@given(REWARDS)
def test_what_has_no_reward_does_not_move_the_others(rewards: list[float | None]) -> None:
    for kind in KINDS:
        every = zip(rewards, advantages(rewards, kind), strict=True)
        kept = [advantage for reward, advantage in every if scored([reward])]
        assert kept == advantages(scored(rewards), kind)


def test_an_unknown_definition_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'dr_grpo'"):
        advantages([1.0], "drgrpo")  # pyright: ignore[reportArgumentType]


def test_numbers_of_numpy_become_plain_and_infinite_ones_are_refused() -> None:
    found = advantages(np.array([1.0, 0.0], np.float32))  # type: ignore[arg-type]
    assert found == advantages([1.0, 0.0])
    assert {type(one) for one in found} == {float}
    for kind in KINDS:
        with pytest.raises(UsageError, match="a reward is infinite: give finite numbers"):
            advantages([math.inf, 1.0], kind)
