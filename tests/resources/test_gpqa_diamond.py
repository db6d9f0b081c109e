from __future__ import annotations

import json

import pytest
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError
from resources.judging import judge, nemo_gym_rows, row
from tables import table

pytestmark = pytest.mark.anyio
TASK = row(options=[{letter: letter * 2} for letter in "ABCD"], expected_answer="B")


@table(
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
        (r"\boxed{E} Answer: B", None),  # no option, and nothing further is looked for
        (r"\boxed{E or B}", "B"),
        ("Answer: B. Answer: E", None),
        (r"\boxed {A} Answer: B", "B"),
        (r"\boxed{A \frac{1}{2} B}", "A"),  # to the first brace
        (r"\boxed{\frac{1}{2} B} Answer: C", "C"),
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
        ("Choice: 5. Answer: B", "B"),
        ("Answer: B", "B"),
    ],
)
async def test_the_rows_own_expression_comes_first(text: str, answer: str) -> None:
    options = [{letter: letter * 2} for letter in "ABCD"]
    template = {"output_regex": "Choice: (.)"}
    task = row(options=options, expected_answer="B", template_metadata=template)
    verdict = await judge("gpqa_diamond", task, text)
    assert (verdict.reward, verdict.fields) == (1.0, {"extracted_answer": answer})


async def test_a_letter_that_is_no_option_is_none() -> None:
    task = row(options=[{"A": "no"}, {"B": "yes"}], expected_answer="C")
    for text in ("Answer: C", r"\boxed{C}"):
        verdict = await judge("gpqa_diamond", task, text)
        assert (verdict.reward, verdict.fields["extracted_answer"]) == (0.0, None)


async def test_a_row_may_lack_options_and_all_messages_are_read() -> None:
    for options in (None, []):
        verdict = await judge(
            "gpqa_diamond", row(options=options, expected_answer="G"), r"\boxed{G}", "Done."
        )
        assert verdict.reward == 1.0
    assert (await judge("gpqa_diamond", row(), r"\boxed{A}")).reward == 0.0


def test_a_list_of_expressions_is_refused() -> None:
    task = row(expected_answer="B", template_metadata={"output_regex": ["(.)"]})
    with pytest.raises(TaskError, match="takes one expression"):
        catalogue.environment("gpqa_diamond").resource.task(task)


async def test_rows_in_nemo_gyms_format_are_won_either_way() -> None:
    for line in nemo_gym_rows("gpqa_diamond"):
        right = json.loads(line)["expected_answer"]
        for text in (f"So it is clear.\n\nAnswer: {right}", rf"\boxed{{{right}}}"):
            assert (await judge("gpqa_diamond", line, text)).reward == 1.0
        assert (await judge("gpqa_diamond", line, f"{right}")).reward == 0.0
