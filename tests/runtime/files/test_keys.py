"""`KeyCounts` is a dictionary of small numbers."""

from __future__ import annotations

from collections import Counter

from gym_runtime.files.keys import KeyCounts
from hypothesis import given
from hypothesis import strategies as st

KEYS = st.tuples(st.integers(0, 2**53), st.integers(0, 2**20)) | st.tuples(
    st.integers(0, 300), st.integers(0, 3)
)


@given(st.lists(KEYS))
def test_it_counts_as_a_counter_does(keys: list[tuple[int, int]]) -> None:
    counts = KeyCounts()
    expected: Counter[tuple[int, int]] = Counter()
    for key in keys:
        expected[key] += 1
        assert counts.increase(*key) == expected[key]
    assert dict(counts.items()) == expected
    assert len(counts) == len(expected)
    assert all(key in counts for key in keys)


def test_counts_end_at_255_and_can_be_taken_back() -> None:
    counts = KeyCounts()
    counts.put(1, 2, 1000)
    assert counts.get(1, 2) == 255
    assert counts.increase(1, 2) == 255
    counts.put(1, 2, 0)
    assert (1, 2) not in counts
    assert len(counts) == 0
    assert (5, 5) not in counts
