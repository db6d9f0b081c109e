from __future__ import annotations

import json

import pytest
from gym_resources.equivalence_rule import LONG_CHARS
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError
from resources.judging import judge, nemo_gym_rows, row
from tables import table

pytestmark = pytest.mark.anyio
NAME = "equivalence_rule"


@table(
    ("text", "exact", "ratio", "weighted"),
    [
        ("abcd", 1.0, 1.0, 1.0),
        (" abcd\n", 1.0, 1.0, 1.0),
        ("abce", 0.0, 0.75, 0.75),
        ("abcdabcd", 0.0, 2 / 3, 1 / 3),
        ("ab", 0.0, 2 / 3, 1 / 3),
        ("xyz", 0.0, 0.0, 0.0),
        ("abcd" * LONG_CHARS, 0.0, 0.0, 0.0),
        ("", 0.0, 0.0, 0.0),
    ],
)
async def test_the_rule_compares(text: str, exact: float, ratio: float, weighted: float) -> None:
    for rule, reward in {"exact": exact, "seq_match": ratio, "weighted_seq_match": weighted}.items():
        verdict = await judge(NAME, row(expected_answer="abcd ", grading_rule=rule), text)
        assert verdict.reward == pytest.approx(reward), rule
    assert (await judge(NAME, row(expected_answer="abcd"), text)).reward == pytest.approx(weighted)


@pytest.mark.parametrize(
    "fields", [{}, {"expected_answer": " "}, {"expected_answer": "a", "grading_rule": "fuzzy"}]
)
async def test_rows_without_an_answer_or_with_another_rule_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(TaskError):
        catalogue.environment(NAME).resource.task(row(**fields))


async def test_rows_in_nemo_gyms_format_are_won_by_their_answer() -> None:
    assert catalogue.resolve_agent_ref("lc_equivalence_rule_simple_agent") == NAME
    for line in nemo_gym_rows(NAME):
        answer = json.loads(line)["expected_answer"]
        assert (await judge(NAME, line, answer)).reward == 1.0
        near = (await judge(NAME, line, f"{answer} (so it says)")).reward
        assert 0 < near < 1
        assert (await judge(NAME, line, f"{answer} (so it says, I think)")).reward < near
