from __future__ import annotations

import json
from typing import Any

import pytest
from gym_resources.extract.overlap import longest_common
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError
from resources.judging import judge, nemo_gym_rows, row
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]
NAME = "lc_niah"
WORDS = [f"n{number}" for number in range(40)]
GIVEN = " ".join(WORDS)
RIGHT = "Final Answer: [a, b]"


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def task(**fields: Any) -> bytes:
    params = {"input": [{"role": "user", "content": GIVEN}]}
    return row(responses_create_params=params, **{"expected_answer": '["a", "b"]', **fields})


@table(
    ("text", "expected", "score"),
    [
        (RIGHT, ["a", "b"], 1.0),
        ("**Final answer:** [`b`, 'a', a]", ["a", "b"], 1.0),
        ("Final Answer: [a]\nFinal Answer: [a, b, c, d]", ["a", "b"], 2 / 3),
        ("Final Answer: [c]", ["a", "b"], 0.0),
        ("Final Answer: []", ["a", "b"], 0.0),
        ("Final Answer: [ ]", [], 1.0),
        ("Final Answer: [a]", [], 0.0),
        ("Final Answer: a, b", ["a", "b"], 0.0),
        ("[a, b]", ["a", "b"], 0.0),
        ("", [], 0.0),
    ],
)
async def test_the_nodes_are_scored(text: str, expected: list[str], score: float) -> None:
    for given in (expected, json.dumps(expected)):
        verdict = await judge(NAME, task(expected_answer=given), text)
        assert (verdict.reward, verdict.fields["answer_score"]) == (
            pytest.approx(score),
            pytest.approx(score),
        )


@table(
    ("metric", "reasoning", "overlap"),
    [
        ("seq_match", GIVEN, 1.0),
        ("seq_match", "?", 0.0),
        ("ngram16", " ".join(WORDS[:17]) + " so", 2 / 3),
        ("ngram16", " ".join(WORDS[:15]), 0.0),
        ("lcs", "so: n10 n11", 8 / 11),
        ("lcs", "?", 0.0),
    ],
)
async def test_what_the_reasoning_copies_costs(metric: str, reasoning: str, overlap: float) -> None:
    for rule, reward in {"base": 1.0, "multiply": 1 - overlap, "minus": 1 - overlap}.items():
        fields = {"overlap_metric_rule": metric, "overlap_grading_rule": rule}
        verdict = await judge(NAME, task(**fields), thought(reasoning), RIGHT)
        assert verdict.reward == pytest.approx(reward), rule
        copied = verdict.fields["reasoning_overlap"]
        assert copied is None if rule == "base" else copied == pytest.approx(overlap)


async def test_a_wrong_answer_can_cost_where_the_overlap_is_taken_off() -> None:
    wrong = [thought(GIVEN), "Final Answer: [z]"]
    assert (await judge(NAME, task(overlap_grading_rule="minus"), *wrong)).reward == -1.0
    assert (await judge(NAME, task(), *wrong)).reward == 0.0


def test_long_texts_have_their_longest_passage_found() -> None:
    common = "".join(chr(97 + n * n % 23) for n in range(500))
    assert longest_common("x" * 20_000 + common + "y" * 9, "z" * 30_000 + common + "x" * 400) == 500
    assert longest_common("", "abc") == longest_common("abc", "") == 0


async def test_an_answer_that_is_no_list_is_refused() -> None:
    with pytest.raises(TaskError, match="it must be a list of nodes"):
        catalogue.environment(NAME).resource.task(task(expected_answer="a, b"))


async def test_rows_in_nemo_gyms_format_are_won_by_their_nodes() -> None:
    for line in nemo_gym_rows(NAME):
        nodes = json.loads(json.loads(line)["expected_answer"])
        text = f"Final Answer: [{', '.join(nodes)}]"
        assert (await judge(NAME, line, thought("Let me look."), text)).reward > 0.9
        copied = [thought(json.loads(line)["responses_create_params"]["input"][0]["content"]), text]
        assert (await judge(NAME, line, *copied)).reward < 0.1
