from __future__ import annotations

import time

import pytest
from gym_resources.extract.boxed import boxed, first_boxed, last_boxed
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("", []),
        ("no box", []),
        (r"\boxed{B}", ["B"]),
        (r"$\boxed{ 42 }$ and \boxed{43}", [" 42 ", "43"]),
        (r"\boxed{\frac{1}{2}}", [r"\frac{1}{2}"]),
        (r"\boxed{}", [""]),
        (r"\boxed {B}", ["B"]),
        (r"\boxed{B} is not \fbox{A}", ["B"]),
        (r"\boxed{a \boxed{b} c}", [r"a \boxed{b} c", "b"]),
        (r"\boxed{\{1, 2\}}", [r"\{1, 2\}"]),
        (r"\boxed{a \} b}", [r"a \} b"]),
        (r"\boxed{1} then \boxed{cut o", ["1"]),
        (r"\boxed{cut \boxed{2}", ["2"]),
        (r"} \boxed{1}", ["1"]),
        ("\\boxed{two\nlines}", ["two\nlines"]),
        (r"\boxed{[[1, 2], [3, 4]]}", ["[[1, 2], [3, 4]]"]),
        (r"boxed{B} or \boxed B", []),
        (r"\\boxed{B}", ["B"]),
    ],
)
def test_boxes_are_found_with_balanced_braces(text: str, contents: list[str]) -> None:
    assert boxed(text) == contents
    assert first_boxed(text) == (contents[0] if contents else None)
    assert last_boxed(text) == (contents[-1] if contents else None)


@given(st.text(alphabet="a{}\\ \n"), st.text(alphabet="ab \n"))
def test_a_last_box_is_found_whatever_stands_before_it(before: str, content: str) -> None:
    assert last_boxed(f"{before}\n\\boxed{{{content}}}") == content


@given(st.text(alphabet="\\boxed{}B "))
def test_contents_are_balanced_parts_of_the_text(text: str) -> None:
    for content in boxed(text):
        assert f"{{{content}}}" in text


def test_many_open_boxes_take_linear_time() -> None:
    start_s = time.perf_counter()
    assert boxed("\\boxed{" * 50_000) == []
    assert time.perf_counter() - start_s < 2
