from __future__ import annotations

import time
from typing import Any

from gym_resources.expected_calls.arguments import alike, similarity
from tables import table


@table(
    ("expected", "actual", "same"),
    [
        (1, 1, True),
        (1, 2, False),
        (1, 1.0, False),
        (1, True, True),
        (0, False, True),
        (2, True, False),
        (True, 1, False),
        (False, 0, False),
        (0.5, 1, False),
        (1.0, 1, False),
        (1, "1", False),
        (None, None, True),
        (None, "", False),
        (0.5, 0.5 + 9e-7, True),
        (0.5, 0.5 + 2e-6, False),
        ("a", "a", True),
        ("a", "A", False),
        ("a", "a a", False),
        ("", "", True),
        ("", "x", False),
        ("one two", "two three four", True),  # 1 of 5 words
        ("one two", "one", False),  # one word is compared as it is
        ("One two", "two ONE", True),
        ("one two", "three four", False),
        ("one two", "three " * 7 + "one", True),  # 1 of 10
        ("one two", "three " * 8 + "one", False),  # 1 of 11
        ({}, {}, True),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": {"b": [1, {"c": 0.1}]}}, {"a": {"b": [1, {"c": 0.1}]}}, True),
        ({"a": {"b": [1, {"c": 0.1}]}}, {"a": {"b": [1, {"c": 0.2}]}}, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ([1, 2], [1], False),
        ([], {}, False),
    ],
)
def test_structure_is_exact_and_wording_is_not(expected: Any, actual: Any, same: bool) -> None:
    assert alike(expected, actual, 0.1) is same


def test_any_wording_will_do_without_a_threshold() -> None:
    assert alike("one two", "three four", 0.0)
    assert not alike("one two", "three", 0.0)
    assert not alike("one", "three", 0.0)
    assert not alike("one two", 3, 0.0)


def test_a_text_of_very_many_words_is_not_counted() -> None:
    start_s = time.thread_time()
    assert not alike("one two " * 500, "one two " * 250_000, 0.1)
    assert alike("one two", "one two " * 250_000, 0.0)
    assert time.thread_time() - start_s < 0.2


def test_words_count_as_often_as_both_have_them() -> None:
    assert similarity("a b", "a b") == 0.5
    assert similarity("a a a", "a a b b") == 2 / 7
    assert similarity("a b", "") == 0.0
    assert similarity("", "") == 0.0
