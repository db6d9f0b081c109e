"""What became of the tokens of groups: each token counts once."""

from __future__ import annotations

from collections import Counter

from gym_runtime.files.token_use import GroupTokens, Spent, token_uses
from hypothesis import given
from hypothesis import strategies as st

GROUPS = st.lists(
    st.tuples(
        st.sampled_from([None, 0.0, 0.5, 1.0, 1e308, -1e308])
        | st.floats(allow_nan=False, allow_infinity=False),
        st.integers(0, 1000),
    )
)


def test_each_kind_of_tokens() -> None:
    assert token_uses([(1.0, 1), (0.0, 2), (0.5, 4), (None, 8)]) == {"useful": 3, "zero": 4, "failed": 8}
    assert token_uses([(1.0, 1), (1.0, 2), (None, 4)]) == {"flat": 3, "failed": 4}
    assert token_uses([(1.0, 1), (None, 2)]) == {"failed": 3}
    assert not token_uses([])


@given(GROUPS)
def test_each_token_counts_once(group: list[Spent]) -> None:
    assert sum(token_uses(group).values()) == sum(tokens for _, tokens in group)


@given(GROUPS)
def test_a_group_counts_when_it_is_complete(group: list[Spent]) -> None:
    tokens, found = GroupTokens(4), Counter[str]()
    for number, (reward, spent) in enumerate(group):
        uses = tokens.add("task", reward, spent)
        tokens.add("another task", reward, 1)
        assert not uses or number % 4 == 3
        found.update(uses)
    whole = len(group) // 4 * 4
    assert sum(found.values()) == sum(spent for _, spent in group[:whole])


def test_tasks_with_one_rollout_are_no_groups() -> None:
    assert not GroupTokens(1).add("task", 1.0, 10)
