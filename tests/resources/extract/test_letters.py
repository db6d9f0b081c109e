from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from gym_resources.extract import letters
from hypothesis import given
from hypothesis import strategies as st
from tables import table

METALS = {"A": "Tin", "B": "Iron", "C": "Iron ore", "D": "Lead."}


@table(
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
        (r"\boxed{\text{\text { \text{B} } }}", "B"),
        (r"\boxed{\text{\text{B) Iron}}}", "B"),
        (r"\boxed{2 \cdot 10^5: B}", None),  # "c" is a letter, too
        (r"\boxed{(1) 5: B!}", "B"),
        (r"\boxed {B}", None),
        (r"\boxed{B} \boxed{B", None),
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


@table(
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
        (r"\boxed{\text{\text{ IRON  }}}", "B"),
        ("tin", None),
    ],
)
def test_in_box_or_worded_takes_the_only_wording_in_the_box(text: str, letter: str | None) -> None:
    assert letters.in_box_or_worded(text, METALS) == letter


def test_a_wording_is_looked_for_with_and_without_the_wrapping() -> None:
    options = {"A": "text", "B": "x ray"}
    assert letters.in_box_or_worded(r"\boxed{\text{an X \n ray}}".replace("\\n", "\n"), options) == "B"
    assert letters.in_box_or_worded(r"\boxed{\text{5}}", options) == "A"
    assert letters.in_box_or_worded(r"\boxed{an x ray text}", options) is None


@table(
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
        (r"Answer: \text{B}", "B"),
        (r"Answer: \text{\text{ iron } }  ", "B"),
        ("Answer: (B)", None),
        ("The answer is B", None),
        ("", None),
    ],
)
def test_after_first_answer_takes_a_letter_or_a_wording(text: str, letter: str | None) -> None:
    assert letters.after_first_answer(text, METALS) == letter


@table(
    ("text", "letter"),
    [
        ("Answer: B", "B"),
        ("answer: b", "B"),
        ("**Answer:** B", "B"),
        ("**Answer: B**", "B"),
        ("**Answer**: **B**", "B"),
        ("__Answer__: `b`", "B"),
        ("### Answer:\n\n**B**", "B"),
        ("Answer: B. Iron", "B"),
        ("Answer: B because A does not rust", "B"),
        ("Answer: B because A and C do not rust", None),  # "A and C" is ambiguous, wherever it stands
        ("Answer: (B)", "B"),
        ("Answer: B) because it rusts", "B"),
        (r"Answer: $\boxed{B}$", "B"),
        (r"Answer: \(\text{B}\)", "B"),
        (r"**Answer:** $\mathbf{B}$", "B"),
        ("Answer: Option B", "B"),
        ("Answer: the correct option is B.", "B"),
        ("Answer: not A but rather C", "C"),
        ("Answer: Both", None),
        ("Answer: B2", None),
        ("Answer: **Iron**", None),  # wordings do not count
        ("Answer: lead.", None),
        ("Answer: E", None),
        ("Answer: E, so B", "B"),
        ("Answer: A\nOn second thoughts, Answer: B", "B"),
        ("Answer: B\nAnswer: unclear", "B"),
        ("The answer: it is the answer: B", "B"),
        # Two letters beside each other are ambiguous.
        ("Answer: A or B", None),
        ("Answer: A / B", None),
        ("Answer: A|B, surely", None),
        ("Answer: A, B", None),
        ("Answer: A & B", None),
        ("Answer: A; B", None),
        ("Answer: it is A and also B or C", None),
        ("Answer: A B", None),
        ("Answer: B, B", "B"),
        ("Answer: B or E", "B"),
        ("Answer: A then B", "A"),
        ("Answer: C\nAnswer: A or B", "C"),
        # Letters of other scripts, these and no others.
        ("Answer: Ｂ", "B"),
        ("Answer：B", None),
        ("Answer: Ｅ", None),
        ("Answer: أ", "A"),
        ("Answer: ا", None),
        ("Answer: ب", "B"),
        ("Answer: ج.", "C"),
        ("**Answer:** د", "D"),
        ("Answer: অ", "A"),
        ("Answer: ব", "B"),
        ("Answer: ড", "C"),
        ("Answer: ঢ", "D"),
        ("The answer is B", None),
        ("", None),
    ],
)
def test_after_last_answer_goes_backwards_through_markup_and_scripts(text: str, letter: str | None) -> None:
    assert letters.after_last_answer(text, METALS) == letter


@table(
    ("found", "letter"),
    [
        ("B", "B"),
        (" b\n", "B"),
        ("z", "Z"),
        ("é", "É"),
        ("5", None),
        ("ব", "B"),
        ("Ｃ", "C"),
        ("IRON", "B"),
        (" iron  ore ", "C"),
        ("ir", None),
        ("", None),
    ],
)
def test_what_an_expression_found_is_any_letter_or_a_wording(found: str, letter: str | None) -> None:
    assert letters.captured(found, METALS) == letter


def test_of_options_with_the_same_wording_the_first_counts() -> None:
    options = {"A": "tin", "B": "Tin", "C": ""}
    assert letters.after_first_answer("Answer: TIN", options) == "A"
    assert letters.captured("tin", options) == "A"
    assert letters.captured("", options) is None


def test_options_have_a_single_letter_and_a_wording() -> None:
    options = [{"a": "Tin", "B": None}, {"1": "Iron"}, {"CC": "Lead"}, {"d": ""}]
    assert letters.lettered(options) == {"A": "Tin", "D": ""}


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


SHAPES = [
    "answer:",
    "answer: A or B ",
    "answer: E\n",
    "answer",
    "a ",
    "A ",
    "\n",
    "\\boxed{",
    "\\boxed{\\text{",
    "\\boxed{A ",
    "Answer: \u0323\u0307",
]


@table("mode", MODES)
@table("shape", SHAPES)
@table("before", ["", "answer:", "\\boxed{" + "\\text{" * 9000])
@pytest.mark.slow
def test_no_text_takes_long(mode: Callable[..., str | None], shape: str, before: str) -> None:
    text = (before + shape * (300_000 // len(shape)))[:300_000] + "}" * 9001
    start_s = time.thread_time()
    mode(text, METALS)
    assert time.thread_time() - start_s < 1
