from __future__ import annotations

from itertools import permutations

from gym_resources.expected_calls.matching import largest_matching
from hypothesis import given
from hypothesis import strategies as st

Edges = set[tuple[int, int]]


def test_the_first_fit_may_not_use_up_the_only_partner() -> None:
    fits = {"a": "12", "b": "1"}
    assert largest_matching("ab", "12", lambda one, other: other in fits[one]) == 2


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 4))))
def test_no_assignment_pairs_more(edges: Edges) -> None:
    best = max(sum((i, j) in edges for i, j in enumerate(order)) for order in permutations(range(5), 4))
    assert largest_matching(range(4), range(5), lambda i, j: (i, j) in edges) == best


def test_nothing_has_no_pairs() -> None:
    assert largest_matching([], [1], lambda *_: True) == largest_matching([1], [], lambda *_: True) == 0
