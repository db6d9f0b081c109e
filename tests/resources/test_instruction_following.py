from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.replay import rejudge
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import TaskError

pytestmark = pytest.mark.anyio

RESOURCE = catalogue.environment("instruction_following").resource
SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "nemo_gym_examples" / "instruction_following"
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "?"},
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words", "startend:quotation"],
    "kwargs": [{}, {"num_words": 3, "relation": "at least", "num_sentences": None}, None],
}


async def judge(*items: Any, **fields: Any) -> Verdict:
    return await rejudge(RESOURCE, msgspec.json.encode({**ROW, **fields}), bytes(Reply.of(*items).raw))


@pytest.mark.parametrize(
    ("items", "followed"),
    [
        (['"One two three"'], [True, True, True]),
        (['"One, two, three"'], [False, True, True]),
        (["One two"], [True, False, False]),
        ([" \n"], [False, False, False]),
        ([], [False, False, False]),
        (["One, two", '"One two three"'], [True, True, True]),  # the last message counts
    ],
)
async def test_all_or_a_share_of_the_instructions_count(items: list[str], followed: list[bool]) -> None:
    verdict = await judge(*items)
    assert verdict.reward == float(all(followed))
    assert verdict.fields == {"follow_all_instructions": all(followed), "follow_instruction_list": followed}
    assert (await judge(*items, grading_mode="fraction")).reward == sum(followed) / 3


async def test_the_instructions_may_stand_in_the_verifiers_metadata() -> None:
    ids, kwargs = ROW["instruction_id_list"], ROW["kwargs"]
    metadata = {"instruction_id_list": ids, "kwargs": kwargs, "prompt": "?", "grading_mode": "fraction"}
    fields = {"verifier_metadata": metadata, "instruction_id_list": None, "kwargs": None}
    assert (await judge("One two", **fields)).reward == 1 / 3
    metadata["grading_mode"] = "binary"
    assert (await judge("One two", **fields)).reward == 0.0
    with pytest.raises(TaskError, match="at least of one"):
        await judge("One two", **{**fields, "verifier_metadata": {"problem": 1}})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"instruction_id_list": ["a:b"], "kwargs": [{}]}, "'a:b': there is no such instruction"),
        (
            {"instruction_id_list": ["keywords:existence"], "kwargs": [{}]},
            "missing required field `keywords`",
        ),
        ({"kwargs": [{}]}, "'kwargs' must hold the arguments of each of 'instruction_id_list'"),
        ({"instruction_id_list": [], "kwargs": []}, "at least of one"),
        ({"grading_mode": "mean"}, "Invalid enum value 'mean'"),
    ],
)
async def test_a_bad_row_is_refused_with_the_reason(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        await judge("Text", **fields)


PARAGRAPHS = ["One.", "Two.", "Crash it went.", "So ended the contest."]
PERFECT = {
    17616: "\n\n".join(PARAGRAPHS),
    44654: "* 第一\n* 第二\n***\n* 第三\n* 第四\n* a SQL query",
    2228: "Relationship simulators sell. Relationship drama sells too!",
    44655: "Page [a] and [b], [c] or [d]. " + "Next. " * 16,
    8654: "<<Jayhorn>>\nFetch it.\n***\nRun it.",
}


async def test_perfect_answers_score_full_on_its_namesakes_rows() -> None:
    if not SHARED.exists():
        pytest.skip(f"no rows of NeMo Gym's 'instruction_following' in {SHARED}")
    for line in (SHARED / "example.jsonl").read_bytes().splitlines():
        for text, reward in (
            (PERFECT[json.loads(line)["id"]], 1.0),
            ("In part, well, inevitable, so it is", 0.0),
        ):
            verdict = await rejudge(RESOURCE, line, bytes(Reply.of(text).raw))
            assert verdict.reward == reward, verdict.fields
