from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from gym_resources.extract import letters
from hypothesis import given
from hypothesis import strategies as st

METALS = {"A": "Tin", "B": "Iron", "C": "Iron ore", "D": "Lead."}


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{B}", "B"),
        (r"\boxed{ B }", "B"),
        (r"\boxed{(B)}", "B"),
        (r"\boxed{B.}", "B"),
        (r"\boxed{**B**}", "B"),
        (r"\boxed{B: Iron}", "B"),
        (r"\boxed{ B : whatever}", "B"),
        (r"\boxed{A} or \boxed{B}", "B"),
        (r"\boxed{B} or \boxed{neither}", None),
        (r"\boxed{b}", None),
        (r"\boxed{AB}", None),
        (r"\boxed{A, B}", None),
        (r"\boxed{\text{B}}", "B"),
        (r"\boxed{ \text {(B)} }", "B"),
        (r"\boxed{\text{B: Iron}}", "B"),
        (r"\boxed{B. Iron}", "B"),
        (r"\boxed{B) Iron}", "B"),
        (r"\boxed{B - Iron}", "B"),
        (r"\boxed{\text{Iron}}", None),
        (r"\boxed{\text{A} or \text{B}}", None),
        (r"\boxed{A polygenic risk score}", None),
        (r"\boxed{Iron}", None),
        (r"\boxed{B Iron}", None),
        (r"\boxed{E}", None),
        (r"\boxed{}", None),
        ("B", None),
        ("", None),
    ],
)
def test_in_box_takes_one_capital_letter_or_a_label(text: str, letter: str | None) -> None:
    assert letters.in_box(text, METALS) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{A}", "A"),
        (r"\boxed{tin}", "A"),
        (r"\boxed{it is  TIN, surely}", "A"),
        (r"\boxed{iron}", "B"),
        (r"\boxed{iron ore}", None),  # "Iron" is part of it too
        (r"\boxed{tin and iron}", None),
        (r"\boxed{gold}", None),
        (r"\boxed{\text{Tin}}", "A"),
        ("tin", None),
    ],
)
def test_in_box_or_worded_takes_the_only_wording_in_the_box(text: str, letter: str | None) -> None:
    assert letters.in_box_or_worded(text, METALS) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("Answer: B", "B"),
        ("answer : b", "B"),
        ("ANSWER:B", "B"),
        ("Answer: Iron", "B"),
        ("Answer:  iron   ORE ", "C"),
        ("Answer: lead.", "D"),
        ("Answer:\nB", "B"),
        ("Answer: A\nAnswer: B", "A"),
        ("Answer: neither\nAnswer: B", None),
        ("**Answer:** B", None),
        ("Answer: B and more", None),
        ("Answer: E", None),
        ("Answer:", None),
        ("The answer is B", None),
        ("", None),
    ],
)
def test_after_first_answer_takes_a_letter_or_a_wording(text: str, letter: str | None) -> None:
    assert letters.after_first_answer(text, METALS) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("Answer: B", "B"),
        ("**Answer:** B", "B"),
        ("**Answer: B**", "B"),
        ("**Answer**: **B**", "B"),
        ("__Answer__: `b`", "B"),
        ("### Answer:\n\n**B**", "B"),
        ("Answer: B. Iron", "B"),
        ("Answer: (B)", "B"),
        ("Answer: B) because it rusts", "B"),
        (r"Answer: $\boxed{B}$", "B"),
        (r"Answer: \(\text{B}\)", "B"),
        (r"**Answer:** $\mathbf{B}$", "B"),
        ("Answer: **Iron**", "B"),
        ("Answer: lead.", "D"),
        ("Answer: A\nOn second thoughts, Answer: B", "B"),
        ("Answer: B\nAnswer: unclear", "B"),
        ("The answer: it is the answer: B", "B"),
        ("Answer：Ｂ", "B"),
        ("Answer: ب", "B"),
        ("Answer: أ", "A"),
        ("Answer: ا", "A"),
        ("Answer: ج.", "C"),
        ("**Answer:** \u200fد", "D"),
        ("Answer: অ", "A"),
        ("Answer: ব", "B"),
        ("Answer: ড", "C"),
        ("Answer: ঢ", "D"),
        ("Answer: A lot of things", None),
        ("Answer: Both", None),
        ("Answer: E", None),
        ("The answer is B", None),
        ("", None),
    ],
)
def test_after_last_answer_goes_backwards_through_markup_and_scripts(text: str, letter: str | None) -> None:
    assert letters.after_last_answer(text, METALS) == letter


def test_a_wording_of_two_options_names_neither() -> None:
    assert letters.named("tin", {"A": "tin", "B": "Tin", "C": ""}) is None
    assert letters.named("", {"A": "tin", "C": ""}) is None


MODES = (
    letters.in_box,
    letters.in_box_or_worded,
    letters.after_first_answer,
    letters.after_last_answer,
)


@pytest.mark.parametrize("mode", MODES)
@given(text=st.text(alphabet="AaBbEe:.*{}\\\n ansrwboxditنأＢ", max_size=60))
def test_any_text_names_an_option_or_none(mode: Callable[..., str | None], text: str) -> None:
    assert mode(text, METALS) in {*METALS, None}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", ["answer:" * 20_000, "answer " + " " * 100_000, "\\boxed{" * 20_000])
def test_no_text_takes_long(mode: Callable[..., str | None], text: str) -> None:
    start_s = time.perf_counter()
    mode(text, METALS)
    assert time.perf_counter() - start_s < 2
