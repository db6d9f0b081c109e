"""Commands in their two forms, and how alike they are."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from resources.commands_judged import NAME, ONE, TWO, commands, task
from resources.judging import judge
from tables import table

pytestmark = pytest.mark.anyio


@table(
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


@table(
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


@table(("wanted", "given", "similarity"), SIMILAR)
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


@table(
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


@pytest.mark.slow
async def test_texts_of_very_different_length_are_not_compared() -> None:
    """What would take minutes, as most of its characters match somewhere."""
    start_s = time.process_time()
    wanted = {**TWO, "commands": commands("".join(chr(97 + n % 26) for n in range(2000)))}
    given = {**TWO, "commands": commands("".join(chr(0x4E00 + n % 20_000) for n in range(900_000)))}
    verdict = await judge(NAME, task(wanted), json.dumps(given))
    assert (verdict.reward, verdict.fields["similarity_score"]) == (0.0, None)
    nested = '{"analysis": ' + "[" * 900_000
    assert (await judge(NAME, task(wanted), nested)).fields["schema_check_passed"] is False
    assert time.process_time() - start_s < 2
