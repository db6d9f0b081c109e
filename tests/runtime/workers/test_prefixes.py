"""The next turn's prompt: rules, on a tokenizer and a template of our own."""

from __future__ import annotations

import pytest
from gym_runtime.workers import moved, splice
from hypothesis import given
from hypothesis import strategies as st

START, END, NEWLINE = 1000, 1001, 1002
ROLES = {"user": 1003, "assistant": 1004, "tool": 1005}

Turn = tuple[str, list[int]]


def render(turns: list[Turn], *, prompted: bool) -> list[int]:
    """ChatML, where a word is a token."""
    ids = [token for role, words in turns for token in (START, ROLES[role], NEWLINE, *words, END, NEWLINE)]
    return [*ids, START, ROLES["assistant"], NEWLINE] if prompted else ids


words = st.lists(st.integers(0, 99), max_size=6)
past = st.lists(st.tuples(st.sampled_from(["user", "tool", "assistant"]), words), min_size=1, max_size=5)


@given(past, words, words, words)
def test_the_prompt_is_the_tokens_so_far_and_what_the_template_adds(
    turns: list[Turn], written: list[int], rendered: list[int], new: list[int]
) -> None:
    """Whatever tokens the model wrote for what the template renders as ``rendered``."""
    so_far = [*render(turns, prompted=True), *written, END]
    turns = [*turns, ("assistant", rendered)]
    history = render(turns, prompted=False)
    whole = render([*turns, ("tool", new)], prompted=True)
    added = [START, ROLES["tool"], NEWLINE, *new, END, NEWLINE, START, ROLES["assistant"], NEWLINE]
    assert splice(so_far, history, whole) == [*so_far, NEWLINE, *added]


@given(past, words, words)
def test_a_rewritten_past_has_no_splice(turns: list[Turn], said: list[int], other: list[int]) -> None:
    if said == other:
        return
    so_far = [*render(turns, prompted=True), *said, END]
    history = render([*turns, ("assistant", said)], prompted=False)
    whole = render([*turns, ("assistant", other), ("user", [1])], prompted=True)
    assert splice(so_far, history, whole) is None


@given(past, words, words, words)
def test_a_turn_that_was_cut_off_at_a_newline_has_no_splice(
    turns: list[Turn], written: list[int], rendered: list[int], new: list[int]
) -> None:
    so_far = [*render(turns, prompted=True), *written, NEWLINE]
    turns = [*turns, ("assistant", rendered)]
    history, whole = render(turns, prompted=False), render([*turns, ("tool", new)], prompted=True)
    assert splice(so_far, history, whole, {START, END}) is None
    ended = splice([*so_far, END], history, whole, {START, END})
    assert ended is not None
    assert ended == splice([*so_far, END], history, whole)


def test_a_template_without_anything_after_the_end() -> None:
    assert splice([1, 5, END], [1, 7, END], [1, 7, END, 3]) == [1, 5, END, 3]


@pytest.mark.parametrize(
    ("so_far", "history", "whole"),
    [
        ([], [1, END], [1, END, 3]),
        ([1, END], [], [1, END, 3]),
        ([1, 5], [1, 7, END, NEWLINE], [1, 7, END, NEWLINE, 3]),  # cut off
        ([1, END], [1, END, 2, 3, 4, 5], [1, END, 2, 3, 4, 5, 6]),  # the end of an earlier turn
    ],
)
def test_nothing_to_go_by(so_far: list[int], history: list[int], whole: list[int]) -> None:
    assert splice(so_far, history, whole) is None


@pytest.mark.parametrize(
    ("offset", "so_far", "expected"),
    [
        (1, [1, 8, 8, 5, END], 1),  # before what differs
        (6, [1, 8, 8, 5, END], 7),  # after the history
        (2, [1, 8, 5, 5, END], None),  # in what differs
    ],
)
def test_where_an_image_stands(offset: int, so_far: list[int], expected: int | None) -> None:
    assert moved(offset, 2, so_far, [1, 8, 8, 7, END], 1) == expected
