"""A table of keys: what a dictionary does, in a third of its memory."""

from __future__ import annotations

import tracemalloc

from gym_runtime.files.key_table import KeyTable
from hypothesis import given
from hypothesis import strategies as st


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300), st.integers(0, 2**31 - 1)))
)
def test_it_is_a_dictionary(entries: list[tuple[int, int]]) -> None:
    table, known = KeyTable(), dict[int, int]()
    for key, number in entries:
        assert table.setdefault(key, number) == known.get(key)
        known.setdefault(key, number)


def test_a_key_takes_few_bytes() -> None:
    tracemalloc.start()
    try:
        table = KeyTable()
        for key in range(100_000):
            assert table.setdefault(key, key) is None
        assert tracemalloc.get_traced_memory()[0] < 40 * 100_000
    finally:
        tracemalloc.stop()
    assert all(table.setdefault(key, 0) == key for key in range(0, 100_000, 97))
