from __future__ import annotations

import functools
import json
import time
from typing import Any

import pytest
from gym_resources.judging.commands import settled
from gym_runtime.checks.reverification import reverify
from gym_runtime.environment import catalogue
from gym_runtime.environment.role_answers import Scripted
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import ModelError, ModelRefused, ResourceError, TaskError
from resources.judging import judge, judged_by, nemo_gym_rows, quotations, row

pytestmark = pytest.mark.anyio
NAME = "terminus_judge"
ONE: dict[str, Any] = {
    "state_analysis": "a",
    "explanation": "b",
    "commands": [{"keystrokes": "ls -la\n", "is_blocking": True, "timeout_sec": 1}],
    "is_task_complete": False,
}
TWO: dict[str, Any] = {
    "analysis": "a",
    "plan": "b",
    "commands": [{"keystrokes": "ls -la\n", "duration": 0.1}],
    "task_complete": False,
}


def task(expected: dict[str, Any], **fields: Any) -> bytes:
    harness = "terminus_1" if "state_analysis" in expected else "terminus_2"
    return row(expected_answer=json.dumps(expected), metadata={"harness": harness}, **fields)


def commands(*texts: str) -> list[dict[str, Any]]:
    return [{"keystrokes": text} for text in texts]


@pytest.mark.parametrize(
    ("answer", "valid", "reward"),
    [
        (json.dumps(ONE), True, 1.0),
        (f"\n {json.dumps(ONE, indent=2)}\n", True, 1.0),
        (json.dumps({**ONE, "state_analysis": "", "explanation": "other words"}), True, 1.0),
        (json.dumps({**ONE, "is_task_complete": True}), True, 1.0),
        (json.dumps({**ONE, "more": 1}), False, 0.0),
        (json.dumps(ONE).replace('"timeout_sec": 1', '"timeout_sec": 1e400'), True, 1.0),
        (json.dumps(ONE).replace('"timeout_sec": 1', f'"timeout_sec": -{"9" * 5000}'), True, 1.0),
        (json.dumps(ONE).replace('"timeout_sec": 1', '"timeout_sec": true'), False, 0.0),
        (json.dumps(ONE).replace('"timeout_sec": 1', '"timeout_sec": null'), False, 0.0),
        (json.dumps(ONE).replace('"timeout_sec": 1', '"timeout_sec": +1'), False, 0.0),
        (json.dumps({**ONE, "commands": [{**ONE["commands"][0], "more": 1}]}), False, 0.0),
        (json.dumps({**ONE, "commands": [{**ONE["commands"][0], "timeout_sec": "1"}]}), False, 0.0),
        (json.dumps({**ONE, "commands": [{**ONE["commands"][0], "is_blocking": 1}]}), False, 0.0),
        (json.dumps({**ONE, "commands": commands("ls -la\n")}), False, 0.0),
        *((json.dumps({k: v for k, v in ONE.items() if k != gone}), False, 0.0) for gone in ONE),
        (json.dumps(TWO), False, 0.0),
        (f"```json\n{json.dumps(ONE)}\n```", False, 0.0),
        (f"{json.dumps(ONE)} That is all.", False, 0.0),
        (json.dumps([ONE]), False, 0.0),
        ("ls -la", False, 0.0),
        ("", False, 0.0),
    ],
)
async def test_the_first_form_is_strict(answer: str, valid: bool, reward: float) -> None:
    verdict = await judge(NAME, task(ONE), answer)
    assert (verdict.fields["schema_check_passed"], verdict.reward) == (valid, reward)


@pytest.mark.parametrize(
    ("answer", "valid", "reward"),
    [
        (TWO, True, 1.0),
        ({**TWO, "commands": commands("ls -la\n")}, True, 1.0),
        ({k: v for k, v in TWO.items() if k != "task_complete"}, True, 1.0),
        ({**TWO, "more": 1}, False, 0.0),
        ({**TWO, "commands": [{**TWO["commands"][0], "more": 1}]}, False, 0.0),
        ({**TWO, "commands": [{**TWO["commands"][0], "duration": 10**30}]}, True, 1.0),
        ({**TWO, "commands": [{**TWO["commands"][0], "duration": True}]}, False, 0.0),
        ({**TWO, "commands": [{**TWO["commands"][0], "duration": "1"}]}, False, 0.0),
        ({**TWO, "task_complete": 0}, False, 0.0),
        ({**TWO, "task_complete": True}, True, 1.0),
        ({**TWO, "task_complete": "false"}, False, 0.0),
        ({**TWO, "commands": "ls -la\n"}, False, 0.0),
        *(
            ({k: v for k, v in TWO.items() if k != gone}, False, 0.0)
            for gone in ("analysis", "plan", "commands")
        ),
        (ONE, False, 0.0),
    ],
)
async def test_the_second_form_leaves_some_things_open(
    answer: dict[str, Any], valid: bool, reward: float
) -> None:
    verdict = await judge(NAME, task(TWO), json.dumps(answer))
    assert (verdict.fields["schema_check_passed"], verdict.reward) == (valid, reward)


SIMILAR: list[tuple[list[str], list[str], float]] = [
    (["ls\n"], ["ls\n"], 1.0),
    (["cd /a\n", "ls\n"], ["cd /a\nls\n"], 1.0),
    ([], [], 1.0),
    ([], ["ls\n"], 0.0),
    (["ls\n"], [], 0.0),
    (["0123456789"], ["012345678x"], 0.9),
    (["0123456789"], ["01234567xy"], 0.8),
]


@pytest.mark.parametrize(("wanted", "given", "similarity"), SIMILAR)
async def test_keystrokes_must_be_nearly_the_same(
    wanted: list[str], given: list[str], similarity: float
) -> None:
    expected = {**TWO, "commands": commands(*wanted)}
    for threshold in (None, 0.0, 0.8, 0.81, 0.9, 0.95, 1.0):
        answer = json.dumps({**TWO, "commands": commands(*given)})
        verdict = await judge(NAME, task(expected, threshold=threshold), answer)
        assert verdict.fields["similarity_score"] == pytest.approx(similarity)
        assert verdict.reward == float(similarity >= (0.95 if threshold is None else threshold))


@pytest.mark.parametrize(
    ("wanted", "given", "similarity"), [([], [""], 0.0), ([""], [], 0.0), ([""], [""], 1.0), ([], [], 1.0)]
)
async def test_no_command_is_like_no_command_only(
    wanted: list[str], given: list[str], similarity: float
) -> None:
    expected, answer = ({**TWO, "commands": commands(*texts)} for texts in (wanted, given))
    assert (await judge(NAME, task(expected), json.dumps(answer))).fields["similarity_score"] == similarity


@pytest.mark.parametrize(
    ("items", "valid"),
    [
        ([json.dumps(TWO)], True),
        (["</think>" + json.dumps(TWO)], True),
        (['{"analysis": </think>\n</think> ' + json.dumps(TWO)], True),
        ([json.dumps(TWO), "</think>"], False),
        (["First a thought.</think>", json.dumps(TWO)], True),
        ([json.dumps(TWO)[:9], json.dumps(TWO)[9:]], False),  # a line break within a string
        (["", json.dumps(TWO), "\n"], True),
        (["Here it is.", json.dumps(TWO)], False),
    ],
)
async def test_all_texts_are_read_behind_the_last_thought(items: list[str], valid: bool) -> None:
    assert (await judge(NAME, task(TWO), *items)).fields["schema_check_passed"] is valid


async def test_texts_of_very_different_length_are_not_compared() -> None:
    """What would take minutes, as most of its characters match somewhere."""
    start_s = time.perf_counter()
    wanted = {**TWO, "commands": commands("".join(chr(97 + n % 26) for n in range(2000)))}
    given = {**TWO, "commands": commands("".join(chr(0x4E00 + n % 20_000) for n in range(900_000)))}
    verdict = await judge(NAME, task(wanted), json.dumps(given))
    assert (verdict.reward, verdict.fields["similarity_score"]) == (0.0, None)
    nested = '{"analysis": ' + "[" * 900_000
    assert (await judge(NAME, task(wanted), nested)).fields["schema_check_passed"] is False
    assert time.perf_counter() - start_s < 2


YES, NO = "[[A=B]]", "[[A!=B]]"
OTHER = json.dumps({**TWO, "commands": commands("find . -maxdepth 1 -ls\n")})


async def judged(answers: list[Scripted], reply: str = OTHER, **fields: Any) -> tuple[Any, list[str]]:
    given = {"expected_answer": json.dumps(TWO), "metadata": {"harness": "terminus_2"}, **fields}
    return await judged_by(NAME, {"judge": answers}, reply, **given)


@pytest.mark.slow
@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("text", "last", "first"),
    [
        (f"{NO} or {YES}", YES, NO),
        (f"{YES}, no: {NO}", NO, YES),
        (f"{YES} {'and so on ' * 30}", YES, YES),
        (f"{YES} {NO} {'and so on ' * 30}", YES, YES),
        (f"{YES} {'and so on ' * 30} {NO}", NO, YES),
        (f"<think>{YES}</think>{NO}", NO, NO),
        ("A=B", None, None),
        ("", None, None),
    ],
)
def test_the_label_near_the_end_counts(text: str, last: str | None, first: str | None) -> None:
    assert (settled(text), settled(text, "first")) == (last, first)


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
