from __future__ import annotations

import time

import pytest
from gym_resources.extract.boxed import last_boxed, last_boxed_to_brace
from gym_resources.extract.braces import closing_brace
from hypothesis import given
from hypothesis import strategies as st
from tables import table


@table(
    ("text", "content"),
    [
        ("", None),
        ("no box", None),
        (r"\boxed{B}", "B"),
        (r"$\boxed{ 42 }$ and \boxed{43}", "43"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{}", ""),
        (r"\boxed {B}", None),
        (r"\boxed{A} \boxed {B}", "A"),
        (r"\boxed{B} is not \fbox{A}", "B"),
        (r"\boxed{a \boxed{b} c}", "b"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{a \} b}", "a \\"),
        (r"\boxed{a \{ b}", None),
        (r"\boxed{1} then \boxed{cut o", None),
        (r"\boxed{cut \boxed{2}", "2"),
        (r"} \boxed{1}", "1"),
        ("\\boxed{two\nlines}", "two\nlines"),
        (r"boxed{B} or \boxed B", None),
        (r"\\boxed{B}", "B"),
        (r"\boxed{ü{ｂ}é}}", "ü{ｂ}é"),
    ],
)
def test_the_last_opening_is_the_box_and_its_braces_balance(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


@table(
    ("text", "content"),
    [
        (r"\boxed{B}", "B"),
        (r"\boxed{A} \boxed{B}", "B"),
        (r"\boxed{\text{B}}", r"\text{B"),
        (r"\boxed{A} \boxed{B", "A"),
        (r"\boxed{B", None),
        (r"\boxed {B}", None),
        ("}", None),
        ("", None),
    ],
)
def test_a_box_may_also_end_at_its_first_brace(text: str, content: str | None) -> None:
    assert last_boxed_to_brace(text) == content


def counted(text: str, start: int) -> int:
    depth = 1
    for index in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if not depth:
            return index
    return -1


@given(st.text(alphabet="{}aé\ud800"), st.integers(0, 5))
def test_a_brace_is_closed_where_counting_says(text: str, start: int) -> None:
    assert closing_brace(text, start) == counted(text, start)


@given(st.lists(st.sampled_from(["{" * 5000, "}" * 5000, "{}" * 3000, "x" * 5000, "}"]), max_size=6))
def test_long_rows_of_braces_are_counted_alike(parts: list[str]) -> None:
    text = "".join(parts)
    assert closing_brace(text, 0) == counted(text, 0)


@pytest.mark.parametrize("inside", ["\\boxed{" * 140_000, "{}" * 500_000, "{" * 500_000 + "}" * 499_000])
def test_a_million_braces_take_linear_time(inside: str) -> None:
    start_s = time.thread_time()
    assert last_boxed("\\boxed{" + inside) is None
    assert time.thread_time() - start_s < 1
