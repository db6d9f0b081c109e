"""Advantages of trees, against values that were computed by hand."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.rollout.groups import EPSILON, advantages
from gym_runtime.rollout.trees import Grown, TreeAdvantage, tree_advantages
from hypothesis import given
from hypothesis import strategies as st

# a and b share two turns, a and c one; d could not be judged.
#
#        ┌ a3 a4 → 1
#   ┌ a2 ┴ b3    → 0
# a1┤
#   └ c2         → 0
TREE = [
    Grown("a", 4, 1.0),
    Grown("b", 3, 0.0, "a", 2),
    Grown("c", 2, 0.0, "a", 1),
    Grown("d", 3, None, "a", 1),
]


def test_steps_are_differences_of_values() -> None:
    # V(a2) = 1/2, V(a1) = 1/4.
    assert tree_advantages(TREE, "spo") == [
        [0.0, 0.25, 0.5, 0.5],
        [0.0, 0.25, -0.5],
        [0.0, -0.25],
        [0.0, 0.0, 0.0],
    ]


def test_siblings_are_groups() -> None:
    # a3 and b3: values 1 and 0, deviation 1/√2; a2 and c2: 1/2 and 0, deviation 1/(2√2).
    upper, lower = 0.5 / (math.sqrt(0.5) + EPSILON), 0.25 / (math.sqrt(0.125) + EPSILON)
    a, b, c, _ = tree_advantages(TREE, "tree_rpo")
    assert a == pytest.approx([0.0, lower, upper, upper])
    assert b == pytest.approx([0.0, lower, -upper])
    assert c == pytest.approx([0.0, -lower])


def test_leaves_and_trees() -> None:
    # Rewards 1, 0, 0: mean 1/3, deviation √(1/3).
    scale = 1 / (math.sqrt(1 / 3) + EPSILON)
    high, low = 2 / 3 * scale, -1 / 3 * scale
    a, b, c, _ = tree_advantages(TREE, "leaves")
    assert a == pytest.approx([0.0, (high + low) / 2, high, high], abs=1e-12)
    assert b == pytest.approx([0.0, (high + low) / 2, low], abs=1e-12)
    assert c == pytest.approx([0.0, low], abs=1e-12)
    # One tree: within it and over all trees is the same, so twice.
    assert tree_advantages(TREE, "tree_grpo")[0] == pytest.approx([2 * one for one in a], abs=1e-12)
    # A second tree of one rollout: rewards 1, 0, 0, 1 over all.
    a, *_, e = tree_advantages([*TREE, Grown("e", 1, 1.0)], "tree_grpo")
    over_all = 0.5 / (math.sqrt(1 / 3) + EPSILON)
    assert a[-1] == pytest.approx(high + over_all)
    assert e == pytest.approx([over_all])


def test_forks_are_a_tree_without_their_parent_too() -> None:
    forks = [Grown("b", 3, 1.0, "a", 2), Grown("c", 4, 0.0, "a", 2)]
    assert tree_advantages(forks, "spo") == [[0.0, 0.0, 0.5], [0.0, 0.0, -0.5, -0.5]]


def test_what_is_no_tree_is_refused() -> None:
    with pytest.raises(UsageError, match=r"did you mean 'spo'\?$"):
        tree_advantages(TREE, "spoo")  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="forks itself"):
        tree_advantages([Grown("a", 2, 1.0, "b", 1), Grown("b", 2, 1.0, "a", 1)])


@st.composite
def trees(draw: st.DrawFn) -> list[Grown]:
    grown: list[Grown] = []
    for number in range(draw(st.integers(1, 12))):
        parent = draw(st.sampled_from(grown)) if grown and draw(st.booleans()) else None
        shared = draw(st.integers(1, parent.turns)) if parent else 0
        turns = shared + draw(st.integers(1, 3))
        reward = draw(st.floats(-10, 10))
        grown.append(Grown(str(number), turns, reward, parent.rollout_id if parent else "", shared))
    return grown


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=8))
def test_a_tree_without_forks_is_a_group(rewards: list[float]) -> None:
    flat = [Grown(str(number), 2, reward) for number, reward in enumerate(rewards)]
    for kind in ("leaves", "tree_rpo", "tree_grpo"):
        assert [one[-1] for one in tree_advantages(flat, kind)] == pytest.approx(advantages(rewards))


@given(trees())
def test_shared_turns_have_one_number(tree: list[Grown]) -> None:
    found = tree_advantages(tree, "spo")
    by_name = {one.rollout_id: values for one, values in zip(tree, found, strict=True)}
    for one, values in zip(tree, found, strict=True):
        if one.parent:
            assert values[: one.shared] == by_name[one.parent][: one.shared]


@given(trees(), st.data())
def test_a_fork_without_a_reward_changes_no_other_turn(tree: list[Grown], data: st.DataObject) -> None:
    parents = {one.parent for one in tree}
    kept = [one for one in tree if not one.parent or one.rollout_id in parents or data.draw(st.booleans())]
    failed = [one if one in kept else one._replace(reward=None) for one in tree]
    for kind in get_args(TreeAdvantage):
        found = tree_advantages(failed, kind)
        assert [values for one, values in zip(failed, found, strict=True) if one in kept] == (
            tree_advantages(kept, kind)
        )
