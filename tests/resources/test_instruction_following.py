from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from gym_resources.extract.patterns import bounded
from gym_resources.instructions.adherence import follow_strictly
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import rejudge
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import TaskError
from resources.judging import call, nemo_gym_rows
from tables import table

pytestmark = pytest.mark.anyio

RESOURCE = catalogue.environment("instruction_following").resource
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "?"},
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words", "startend:quotation"],
    "kwargs": [{}, {"num_words": 3, "relation": "at least", "num_sentences": None}, None],
}


def text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text}


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [*parts]}


async def judge(*items: Any, **fields: Any) -> Verdict:
    return await rejudge(RESOURCE, msgspec.json.encode({**ROW, **fields}), bytes(Reply.of(*items).raw))


@table(
    ("items", "followed"),
    [
        (['"One two three"'], [True, True, True]),
        (['"One, two, three"'], [False, True, True]),
        (["One two"], [True, False, False]),
        ([" \n"], [True, False, False]),  # checked like any other text
        ([], [True, False, False]),
        (["One, two", '"One two three"'], [True, True, True]),  # the last message counts
        (['"One two three"', call("look", {})], [True, False, False]),
        (["One, two", {"type": "reasoning", "summary": []}], [True, False, False]),
        ([message(text('"One two three"'), text(", and more"))], [True, True, True]),
        ([message(text(""), text("One, two"))], [True, False, False]),
        ([message({"type": "refusal", "refusal": "No, no, no"})], [True, False, False]),
    ],
)
async def test_all_or_a_share_of_the_instructions_count(items: list[Any], followed: list[bool]) -> None:
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


@table(
    ("instruction", "arguments"),
    [
        ("keywords:existance", {"keywords": ["one"]}),
        ("keywords:existence", {}),
        ("keywords:existence", None),
        ("keywords:existence", {"keywords": None}),
        ("keywords:existence", {"keywords": "one"}),
        ("keywords:existence", {"keywords": ["one", "("]}),
        ("keywords:frequency", {"keyword": "one", "frequency": 1, "relation": "more than"}),
        ("keywords:word_count_different_numbers", {"keyword": "o", "frequency": 1, "relation": "more than"}),
        ("length_constraints:number_words", {"num_words": 1.5, "relation": "at least"}),
    ],
)
async def test_what_is_unknown_or_unfit_is_not_followed(instruction: str, arguments: Any) -> None:
    fields = {
        "instruction_id_list": ["punctuation:no_comma", instruction],
        "kwargs": [{}, arguments],
        "grading_mode": "fraction",
    }
    verdict = await judge("one one", **fields)
    assert (verdict.reward, verdict.fields["follow_instruction_list"]) == (0.5, [True, False])


@pytest.mark.slow
@table(
    ("instruction", "arguments", "text", "followed"),
    [
        ("keywords:existence", {"keywords": ["colou?r", "r.d"]}, "A RED color", True),
        ("keywords:existence", {"keywords": ["colou?r", "r.d"]}, "a colour", False),
        ("keywords:frequency", {"keyword": " [ab]c ", "frequency": 2, "relation": "at least"}, "AC bc", True),
        ("keywords:frequency", {"keyword": "a|b", "frequency": 2, "relation": "less than"}, "ab", False),
        ("keywords:word_once", {"keyword": "a+"}, "aaa", True),
        ("keywords:word_once", {"keyword": "a+"}, "a ba", False),
        ("keywords:forbidden_words", {"forbidden_words": ["ba[dr]"]}, "Bar none", False),
        ("keywords:forbidden_words", {"forbidden_words": ["ba[dr]"]}, "barn", True),
        ("keywords:exclude_word_harder", {"keyword": "a."}, "x ab y", True),  # others are taken literally
    ],
)
async def test_keywords_are_expressions_in_any_case(
    instruction: str, arguments: dict[str, Any], text: str, followed: bool
) -> None:
    verdict = await judge(text, instruction_id_list=[instruction], kwargs=[arguments])
    assert verdict.fields["follow_instruction_list"] == [followed]


@pytest.mark.slow
async def test_an_expression_that_backtracks_blocks_nothing() -> None:
    row = {**ROW, "instruction_id_list": ["keywords:word_once"], "kwargs": [{"keyword": "(a+)+$"}]}
    task: Any = RESOURCE.task(msgspec.json.encode(row))
    start_s = time.thread_time()
    with pytest.raises(TaskError, match=r"the row's expression .* backtracks: it took longer than 0.5 s"):
        await judged_within(task, "a" * 40 + "b", timeout_s=0.5)
    assert time.thread_time() - start_s < 0.2


async def judged_within(task: Any, text: str, timeout_s: float) -> list[bool]:
    given = task.instructions
    return await bounded(follow_strictly, text, given, expressions=["(a+)+$"], timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
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
    900001: "The moon moves the water twice a day.",
    17616: "\n\n".join(PARAGRAPHS),
    44654: "* 第一\n* 第二\n***\n* 第三\n* 第四\n* a SQL query",
    2228: "Relationship simulators sell. Relationship drama sells too!",
    44655: "Page [a] and [b], [c] or [d]. " + "Next. " * 16,
    8654: "<<Jayhorn>>\nFetch it.\n***\nRun it.",
}


async def test_perfect_answers_score_full_on_rows_in_nemo_gyms_format() -> None:
    for line in nemo_gym_rows("instruction_following"):
        for text, reward in (
            (PERFECT[json.loads(line)["id"]], 1.0),
            ("In part, well, inevitable, so it is", 0.0),
        ):
            verdict = await rejudge(RESOURCE, line, bytes(Reply.of(text).raw))
            assert verdict.reward == reward, verdict.fields
