"""What is not alike is judged."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from gym_resources.judging.command_batches import LABELS
from gym_resources.judging.labels import label
from gym_runtime.environment import catalogue
from gym_runtime.environment.roles import Scripted
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import ModelError, ModelRefused, ResourceError, TaskError
from gym_testing.checks.reverification import reverify
from resources.commands_judged import NAME, ONE, TWO, commands, task
from resources.judging import judge, judged_by, nemo_gym_rows, quotations, row
from tables import table

pytestmark = pytest.mark.anyio


YES, NO = "[[A=B]]", "[[A!=B]]"


OTHER = json.dumps({**TWO, "commands": commands("find . -maxdepth 1 -ls\n")})


async def judged(answers: list[Scripted], reply: str = OTHER, **fields: Any) -> tuple[Any, list[str]]:
    given = {"expected_answer": json.dumps(TWO), "metadata": {"harness": "terminus_2"}, **fields}
    return await judged_by(NAME, {"judge": answers}, reply, **given)


@pytest.mark.slow
@table(
    ("answers", "fields", "reward", "reason"),
    [
        ([YES], {}, 1.0, "none"),
        ([NO], {}, 0.0, "judge_not_equivalent"),
        ([""], {}, 0.0, "judge_parsing_failed"),
        ([YES, NO], {"check_twice_swap": True}, 0.0, "judge_not_equivalent"),
        ([YES, YES], {"judge_prompt": "simple"}, 1.0, "none"),
        ([YES, NO], {"judge_prompt": "simple"}, 0.0, "judge_not_equivalent"),
        ([YES, "?"], {"judge_prompt": "simple"}, 0.0, "judge_swap_parsing_failed"),
        (["?"], {"judge_prompt": "simple"}, 0.0, "judge_parsing_failed"),
        ([YES], {"judge_prompt": "simple", "check_twice_swap": False}, 1.0, "none"),
        ([YES], {"enable_string_similarity": False}, 1.0, "none"),
        ([], {"enable_llm_judge": False}, 0.0, "string_similarity_below_threshold"),
        ([], {"enable_llm_judge": False, "enable_string_similarity": False}, 1.0, "none"),
    ],
)
async def test_what_is_not_alike_is_judged(
    answers: list[Scripted], fields: dict[str, Any], reward: float, reason: str
) -> None:
    verdict, prompts = await judged(answers, **fields)
    assert (verdict.reward, verdict.fields["failure_reason"]) == (reward, reason)
    assert verdict.fields["judge_passed"] is (bool(answers) and reward == 1.0)
    assert len(prompts) == len(answers) == len(verdict.fields["judge_evaluations"])
    orders = [[json.dumps(TWO), OTHER], [OTHER, json.dumps(TWO)]]
    assert [quotations(prompt) for prompt in prompts] == orders[: len(answers)]
    asked = [
        one["responses_create_params"].get("max_output_tokens") for one in verdict.fields["judge_evaluations"]
    ]
    assert set(asked) <= ({1024} if "judge_prompt" in fields else {None})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "reward", "reason"),
    [
        (json.dumps(TWO), 1.0, "none"),
        ("ls", 0.0, "model_output_invalid"),
        ("{}", 0.0, "schema_check_failed"),
        (json.dumps(TWO), 0.0, "task_complete_check_failed"),
    ],
)
async def test_the_judge_is_asked_only_about_what_it_can_save(reply: str, reward: float, reason: str) -> None:
    expected = {**TWO, "task_complete": reason == "task_complete_check_failed"}
    verdict, prompts = await judged([], reply, expected_answer=json.dumps(expected))
    assert (verdict.reward, verdict.fields["failure_reason"], prompts) == (reward, reason, [])


@pytest.mark.slow
async def test_the_simple_configuration_has_its_own_threshold() -> None:
    expected = json.dumps({**TWO, "commands": commands("0123456789")})
    given = json.dumps({**TWO, "commands": commands("012345678x")})  # 0.9 alike
    for form, fields, questions in (("rubric", {}, 1), ("simple", {}, 0), ("simple", {"threshold": 0.91}, 1)):
        _, prompts = await judged([NO], given, expected_answer=expected, judge_prompt=form, **fields)
        assert len(prompts) == questions


@pytest.mark.slow
async def test_a_judge_that_fails_or_is_missing_is_no_verdict() -> None:
    with pytest.raises(ModelError) as caught:
        await judged([ModelRefused("content filter")])
    assert caught.value.stage == "judge"
    given = {"expected_answer": json.dumps(TWO), "metadata": {"harness": "terminus_2"}}
    verdict, _ = await judged_by(NAME, {}, OTHER, **given)
    assert verdict.fields["failure_reason"] == "string_similarity_below_threshold"
    with pytest.raises(ResourceError, match="--judge"):
        await judged_by(NAME, {}, OTHER, **given, enable_string_similarity=False)


@table(
    ("text", "last", "first"),
    [
        (f"{NO} or {YES}", YES, NO),
        (f"{YES}, no: {NO}", NO, YES),
        (f"{YES} {'and so on ' * 30}", YES, YES),
        (f"{YES} {NO} {'and so on ' * 30}", NO, YES),
        (f"{YES} {'and so on ' * 30} {NO}", NO, YES),
        (f"It says {YES}.\nBut it lies.", None, YES),
        (f"So:\n```\n{NO}\n```\n", NO, NO),
        (f"<think>{YES}</think>{NO}", NO, NO),
        ("A=B", None, None),
        ("", None, None),
    ],
)
def test_the_label_of_the_last_line_counts(text: str, last: str | None, first: str | None) -> None:
    assert (label(text, LABELS), label(text, LABELS, "first")) == (last, first)


async def test_the_string_only_configuration_is_milder() -> None:
    expected = {**TWO, "commands": commands("0123456789" * 2)}
    given = json.dumps({**TWO, "commands": commands("0123456789" + "012345678x")})  # 0.95 alike
    row_of = functools.partial(task, expected, response=json.loads(make_response(given)))
    for name, threshold, reward in (
        ("terminus_judge_simple_agent", 0.96, 0.0),
        ("terminus_judge_simple_agent", None, 1.0),
        ("terminus_judge_string_only_simple_agent", None, 1.0),
        ("terminus_judge_string_only_simple_agent", 0.96, 0.0),
    ):
        line = row_of(agent_ref={"name": name}, threshold=threshold)
        assert (await reverify(None, line)).reward == reward
    less = json.dumps({**TWO, "commands": commands("0123456789" + "01234567xy")})  # 0.9 alike
    row_of = functools.partial(task, expected, response=json.loads(make_response(less)))
    assert (await reverify(None, row_of(agent_ref={"name": "terminus_judge_simple_agent"}))).reward == 0.0
    string_only = {"name": "terminus_judge_string_only_simple_agent"}
    assert (await reverify(None, row_of(agent_ref=string_only))).reward == 1.0


async def test_the_task_must_be_called_complete_where_it_is() -> None:
    done = {**TWO, "commands": [], "task_complete": True}
    assert (await judge(NAME, task(done), json.dumps(done))).reward == 1.0
    assert (await judge(NAME, task(done), json.dumps({**done, "task_complete": False}))).reward == 0.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"expected_answer": "ls"}, "not a JSON object as terminus_1 writes"),
        ({"metadata": {"harness": "terminus_2"}}, "not a JSON object as terminus_2 writes"),
        ({"metadata": {"harness": "terminus_3"}}, "Invalid enum value 'terminus_3'"),
        ({"threshold": 2}, "<= 1.0"),
    ],
)
async def test_a_row_that_cannot_be_won_is_refused(fields: dict[str, Any], message: str) -> None:
    good = {"expected_answer": json.dumps(ONE), "metadata": {"harness": "terminus_1"}}
    with pytest.raises(TaskError, match=message):
        catalogue.environment(NAME).resource.task(row(**{**good, **fields}))


async def test_rows_in_nemo_gyms_format_are_won_by_their_commands() -> None:
    for line in nemo_gym_rows(NAME):
        theirs = json.loads(line)
        assert (await judge(NAME, line, theirs["expected_answer"])).reward == 1.0
        other = json.loads(theirs["expected_answer"])
        other["commands"][0]["keystrokes"] = "uname -a\n"
        assert (await judge(NAME, line, json.dumps(other))).reward == 0.0
