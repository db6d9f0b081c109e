from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from gym_runtime.errors import TaskError
from resources.judging import call, judge, nemo_gym_rows, row
from tables import table

pytestmark = pytest.mark.anyio

EDIT = {"command": "str_replace", "path": "/repo/a.py", "old_str": "x = 1\n", "new_str": "x = 2"}
SEARCH = {"command": "grep -rn 'total' /repo"}
VIEW = {"command": "view", "path": "/repo/a.py", "view_range": [1, 9]}


def expected(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    made = call(name, arguments)
    return {key: made[key] for key in ("type", "name", "arguments")}


async def verdict(action: dict[str, Any], *items: Any, **fields: Any) -> tuple[float, str]:
    found = await judge("swe_pivot", row(expected_action=action, **fields), *items)
    return found.reward, found.fields["failure_reason"]


@table(
    ("arguments", "made", "reason"),
    [
        (EDIT, EDIT, "none"),
        (EDIT, {**EDIT, "old_str": "\nx = 1  \n"}, "none"),
        (EDIT, {**EDIT, "path": "/repo/b/../a.py"}, "none"),
        (EDIT, {**EDIT, "insert_line": None}, "none"),
        (EDIT, {**EDIT, "insert_line": 3}, "arguments"),
        (EDIT, {**EDIT, "new_str": "x = 3"}, "arguments"),
        (EDIT, {**EDIT, "old_str": "    x = 1"}, "arguments"),
        (EDIT, {**EDIT, "path": "/repo/b.py"}, "arguments"),
        (VIEW, {**VIEW, "view_range": [1, 8]}, "arguments"),
        (VIEW, {**VIEW, "view_range": "[1, 9]"}, "arguments"),
        (VIEW, {"command": "view", "path": "/repo/a.py"}, "arguments"),
        (SEARCH, '{"command": "grep', "arguments"),
        (SEARCH, "[]", "arguments"),
    ],
)
async def test_a_call_equals_the_demonstrated_one(
    arguments: dict[str, Any], made: dict[str, Any] | str, reason: str
) -> None:
    found = await verdict(expected("tool", arguments), "So:", call("tool", made))
    assert found == (float(reason == "none"), reason)


async def test_there_are_as_many_calls_as_expected_with_the_same_names() -> None:
    action = expected("execute_bash", SEARCH)
    assert await verdict(action, "I would search.") == (0.0, "call_expected")
    assert await verdict(action, *[call("execute_bash", SEARCH)] * 2) == (0.0, "number_of_calls")
    assert await verdict(action, call("bash", SEARCH)) == (0.0, "tool_name")
    both = {"type": "function_call_batch", "calls": [action, expected("think", {"thought": "why"})]}
    made = [call("think", {"thought": "why"}), call("execute_bash", SEARCH)]
    assert await verdict(both, *made) == (1.0, "none")
    assert await verdict(both, made[0], call("execute_bash", VIEW)) == (0.0, "arguments")


async def test_where_a_message_is_expected_a_text_without_a_call_is_right() -> None:
    action = {"type": "message", "content": "Done."}
    assert await verdict(action, "It works now.") == (1.0, "none")
    assert await verdict(action, " ") == (0.0, "message_expected")
    assert await verdict(action, "Done.", call("execute_bash", SEARCH)) == (0.0, "message_expected")


async def test_a_threshold_permits_another_wording_but_no_other_path_or_subcommand() -> None:
    loose = {"string_similarity_threshold": 0.8}
    wording = call("tool", {"command": 'grep -rn "total" /repo'})
    assert await verdict(expected("tool", SEARCH), wording) == (0.0, "arguments")
    assert await verdict(expected("tool", SEARCH), wording, **loose) == (1.0, "none")
    assert await verdict(expected("tool", SEARCH), call("tool", {"command": "ls -la"}), **loose) == (
        0.0,
        "arguments",
    )
    for other in ({"path": "/repo/a.pyx"}, {"command": "str_replaced"}):
        assert (await verdict(expected("tool", EDIT), call("tool", {**EDIT, **other}), **loose))[0] == 0.0


async def test_nemo_gyms_demonstrated_actions_score_full() -> None:
    for line in nemo_gym_rows("swe_pivot"):
        action = json.loads(line)["expected_action"]
        assert (await judge("swe_pivot", line, call(action["name"], action["arguments"]))).reward == 1.0


async def test_a_wording_that_is_slow_to_compare_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(*_: object, **__: object) -> float:
        raise TaskError("took longer than 5 s", stage="verify")

    module = importlib.import_module("gym_resources.swe_pivot")
    monkeypatch.setattr(module, "bounded", slow)
    wording = call("tool", {"command": 'grep -rn "total" /repo'})
    found = await verdict(expected("tool", SEARCH), wording, string_similarity_threshold=0.1)
    assert found == (0.0, "arguments")
