from __future__ import annotations

import json

import pytest
from resources.judging import judge, namesakes, row

pytestmark = pytest.mark.anyio
TASK = row(options=[{letter: letter * 2} for letter in "ABCD"], expected_answer="B")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: B", "B"),
        ("answer: b", "B"),
        ("**Answer:** B.", "B"),
        ("**Answer: B**", "B"),
        ("__Answer__ :__B__", "B"),
        ("Answer: **B**", None),  # more signs than its rule allows
        ("Answer:\nB", "B"),
        ("Answer: A\n\nAnswer: B", "B"),
        ("Answer: Because", None),
        ("Answer: B2", None),
        ("The answer is B", None),
        ("B", None),
        (r"\boxed{B}", "B"),
        (r"\boxed{\text{(B)}}", "B"),
        (r"\boxed{A} \boxed{B}", "B"),
        (r"\boxed{A or B}", "B"),
        (r"Answer: A \boxed{B}", "B"),
        (r"\boxed{B} Answer: A", "B"),
        (r"\boxed{10^{-4}\,eV} Answer: B", "B"),
        (r"\boxed{b} Answer: B", "B"),
        (r"\boxed{B", None),
        (r"\boxed{E} Answer: B", "E"),
        ("", None),
    ],
)
async def test_the_last_box_comes_before_the_last_answer(text: str, answer: str | None) -> None:
    verdict = await judge("gpqa_diamond", TASK, text)
    assert verdict.fields == {"extracted_answer": answer}
    assert verdict.reward == float(answer == "B")


@pytest.mark.parametrize(
    "mode",
    ["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md", None],
)
async def test_the_grading_mode_changes_nothing(mode: str | None) -> None:
    fields = {"grading_mode": mode, "template_metadata": None, "metadata": None}
    task = row(options=[{"A": "no"}, {"B": "yes"}], expected_answer="B", **fields)
    assert (await judge("gpqa_diamond", task, "Choice: A. Answer: B")).reward == 1.0
    assert (await judge("gpqa_diamond", task, "Choice: B. Answer: yes")).reward == 0.0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Choice: B. Answer: A", "B"),
        (r"\boxed{A} Choice: b", "B"),
        ("Choice: Z. Answer: B", "B"),
        ("Answer: B", "B"),
    ],
)
async def test_the_rows_own_expression_comes_first(text: str, answer: str) -> None:
    options = [{letter: letter * 2} for letter in "ABCD"]
    template = {"output_regex": "Choice: (.)"}
    task = row(options=options, expected_answer="B", template_metadata=template)
    verdict = await judge("gpqa_diamond", task, text)
    assert (verdict.reward, verdict.fields) == (1.0, {"extracted_answer": answer})


async def test_the_rows_of_its_namesake_are_won_either_way() -> None:
    for task in namesakes("gpqa_diamond"):
        line, right = json.dumps(task).encode(), task["expected_answer"]
        for text in (f"So it is clear.\n\nAnswer: {right}", rf"\boxed{{{right}}}"):
            assert (await judge("gpqa_diamond", line, text)).reward == 1.0
        assert (await judge("gpqa_diamond", line, f"{right}")).reward == 0.0
