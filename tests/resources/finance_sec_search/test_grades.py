"""The three grades of what was submitted, and grading without a judge."""

from __future__ import annotations

from typing import Any

import pytest
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.roles import Scripted, ScriptedAnswers
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import GymError, ModelUnavailable, ResourceError
from resources.finance_sec_search.filing_sessions import NAME, QUESTION
from resources.judging import call, quotations, row
from tables import table

pytest.importorskip("trafilatura", reason="needs pip install 'gym-runtime[search]'")
pytestmark = pytest.mark.anyio


async def graded(
    submissions: list[Any], answers: list[Scripted], **fields: Any
) -> tuple[Verdict, ScriptedAnswers]:
    resource = catalogue.environment(NAME).resource
    scripted = ScriptedAnswers({"judge": answers})
    calls = [call("submit_final_result", given) for given in submissions]
    task = row(**{**QUESTION, "search_backend": "replay", **fields})
    async with session_of(resource, task, scripted.models(resource.roles)) as session:
        verdict = await resource.verify(session, make_response(*calls, "Done."))
    assert isinstance(verdict, Verdict)
    return verdict, scripted


RESULT = {"final_result": "1,284, says the report."}


@table(
    ("answers", "binary", "scaled", "rating", "asked"),
    [
        (["Right. [[2]]"], 1.0, 1.0, 2, 1),
        (["Partly. [[1]]"], 0.0, 0.5, 1, 1),
        (["[[2]]? No: [[0]]"], 0.0, 0.0, 0, 1),
        (["?", "?", "[[2]]"], 1.0, 1.0, 2, 3),
        (["?", "?", "?"], 0.0, 0.0, 0, 3),
        (["[[3]]", "[[2]]"], 1.0, 1.0, 2, 2),
    ],
)
async def test_grades(answers: list[Scripted], binary: float, scaled: float, rating: int, asked: int) -> None:
    verdict, scripted = await graded([RESULT], answers)
    assert (verdict.reward, verdict.fields["judge_rating"]) == (binary, rating)
    assert len(scripted.asked) == asked
    assert quotations(scripted.asked[0][1][-1]["content"]) == ["How many?", "1,284", RESULT["final_result"]]
    verdict, _ = await graded([RESULT], answers, reward_mode="scaled")
    assert verdict.reward == scaled


async def test_what_was_submitted_last_counts() -> None:
    _, scripted = await graded([{"final_result": "1"}, RESULT], ["[[2]]"])
    assert RESULT["final_result"] in scripted.asked[0][1][-1]["content"]


@table(
    "given",
    [{"final_result": " "}, {"final_result": 3}, {}, "[]", "{", "[" * 100_000, '{"final_result": "\\ud800"}'],
)
async def test_nothing_submitted_is_worth_nothing_and_not_judged(given: Any) -> None:
    verdict, scripted = await graded([given], [])
    assert (verdict.reward, verdict.fields["judge_rating"], scripted.asked) == (0.0, 0, [])


async def test_a_judge_that_fails_is_no_reward() -> None:
    with pytest.raises(GymError):
        await graded([RESULT], [ModelUnavailable("gone")])
    resource = catalogue.environment(NAME).resource
    with pytest.raises(ResourceError, match="use_judge=false"):
        models = ScriptedAnswers({"retrieval": []}).models(resource.roles)
        await resource.open(row(**QUESTION, search_backend="replay"), models)


async def test_without_a_judge_the_answer_must_be_in_the_submission() -> None:
    for submitted, reward in (("It is 1,284.", 1.0), ("It is 1284.", 0.0)):
        verdict, scripted = await graded([{"final_result": submitted}], [], use_judge=False)
        assert (verdict.reward, scripted.asked) == (reward, [])
