from __future__ import annotations

import json

import pytest
from resources.judging import judge, nemo_gym_rows, row
from tables import table

pytestmark = pytest.mark.anyio


@table(
    ("text", "strict", "lenient"),
    [
        ("<solution>B</solution>", "B", "B"),
        ("<solution>\n B \n</solution>", "B", "B"),
        ("<solution>A</solution> No: <solution>B</solution>", "B", "B"),
        ("<think><solution>A</solution></think>\n<solution>B</solution>", "B", "B"),
        ("<solution>Fix B</solution>", None, "B"),
        ("<solution>[B]</solution>", None, "B"),
        ("<solution>B, not A</solution>", None, "B"),
        ("<solution>Not A, but B</solution>", None, "A"),
        ("<solution>FIX: E or B</solution>", None, "B"),
        ("<solution>b</solution>", None, None),
        ("<solution>- bad\n+ good</solution>", None, None),
        ("<solution>E</solution>", None, None),
        ("<solution></solution>", None, None),
        ("<solution>B", None, None),
        ("B", None, None),
        (r"\boxed{B}", None, None),
        ("", None, None),
    ],
)
async def test_the_last_solution_names_an_option(text: str, strict: str | None, lenient: str | None) -> None:
    options = [{"A": "- bad\n+ worse"}, {"B": "- bad\n+ good"}]
    for mode, answer in (("strict", strict), ("lenient", lenient)):
        task = row(options=options, expected_answer="B", grading_mode=mode)
        verdict = await judge("swerl_llm_judge", task, text)
        assert (verdict.fields["extracted_answer"], verdict.reward) == (answer, float(answer == "B"))


async def test_rows_in_nemo_gyms_format_are_won_by_their_letter() -> None:
    for line in nemo_gym_rows("swerl_llm_judge"):
        task = json.loads(line)
        for option in task["options"]:
            [letter] = option
            verdict = await judge("swerl_llm_judge", line, f"Since it is so.\n<solution>{letter}</solution>")
            assert verdict.reward == float(letter == task["expected_answer"])


@table(
    ("tag", "reward"),
    [
        ("B", 1),
        ("Fix B", 1),
        ("[B]", 1),
        ("B, A", 0),
        ("B or A", 0),
        ("not B", 0),
        ("of all words Fix B", 0),
        ("A", 0),
    ],
)
async def test_the_strict_rule_takes_one_option_and_few_words(tag: str, reward: float) -> None:
    options = [{"A": "- bad\n+ worse"}, {"B": "- bad\n+ good"}]
    task = row(options=options, expected_answer="B", grading_mode="lenient", strict=True)
    assert (await judge("swerl_llm_judge", task, f"<solution>{tag}</solution>")).reward == reward
