from __future__ import annotations

import json
import time

import pytest
from gym_resources.string_match import same
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError
from resources.judging import judge, nemo_gym_rows, row
from tables import table

pytestmark = pytest.mark.anyio
NAME = "string_match"


@table(
    ("mode", "text", "reward"),
    [
        ("final_answer", "Final answer: Saturn", 1.0),
        ("final_answer", "Answer: Mars\nANSWER:  saturn \nBye.", 1.0),
        ("final_answer", "Final answer: Saturn\nFinal answer: Mars", 0.0),
        ("final_answer", "Final answer: Saturn.", 0.0),
        ("final_answer", "Final answer:\nSaturn", 0.0),
        ("final_answer", r"It is \boxed{Saturn}.", 1.0),
        ("final_answer", r"Answer: Mars, not \boxed{Saturn}", 0.0),
        ("final_answer", "Saturn", 0.0),
        ("boxed", r"\boxed{Mars}, or rather \boxed{ \text{Saturn} }", 1.0),
        ("boxed", "Final answer: Saturn", 0.0),
        ("boxed", r"\boxed{Saturn", 0.0),
        ("last_line", "Mars?\n\nSaturn\n \n", 1.0),
        ("last_line", "Saturn\nBye.", 0.0),
        ("full_response", "\n Ｓａturn ", 1.0),
        ("full_response", "It is Saturn", 0.0),
        *((mode, "", 0.0) for mode in ("final_answer", "boxed", "last_line", "full_response")),
    ],
)
async def test_the_answer_stands_where_the_row_says(mode: str, text: str, reward: float) -> None:
    verdict = await judge(NAME, row(expected_answer="Saturn", extraction_mode=mode), text)
    assert verdict.reward == reward


async def test_case_counts_where_the_row_says_so() -> None:
    task = row(expected_answer="pH  meter", extraction_mode="full_response", case_sensitive=True)
    assert [(await judge(NAME, task, text)).reward for text in ("pH meter", "ph meter")] == [1.0, 0.0]


def test_a_text_that_is_far_too_long_is_not_normalised() -> None:
    started_s = time.process_time()
    assert not same("a" + "\u0301\u0327" * 500_000, "a")
    assert time.process_time() - started_s < 1


@pytest.mark.parametrize(
    "fields", [{"expected_answer": " "}, {"expected_answer": "a", "extraction_mode": "x"}]
)
async def test_rows_that_nothing_can_match_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(TaskError):
        catalogue.environment(NAME).resource.task(row(**fields))


async def test_rows_in_nemo_gyms_format_are_won_by_their_answer() -> None:
    for line in nemo_gym_rows(NAME):
        answer = json.loads(line)["expected_answer"]
        text = rf"\boxed{{{answer}}}" if json.loads(line)["extraction_mode"] == "boxed" else answer
        marked = text if json.loads(line)["extraction_mode"] != "final_answer" else f"Final answer: {text}"
        assert (await judge(NAME, line, f"Let me see.\n{marked}")).reward == 1.0
        assert (await judge(NAME, line, f"{marked} or not")).reward == float("boxed" in text)
