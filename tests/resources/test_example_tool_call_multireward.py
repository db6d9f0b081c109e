from __future__ import annotations

import json
from typing import Any

import pytest
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError
from resources.judging import call, judge, nemo_gym_rows, row
from tables import table

pytestmark = pytest.mark.anyio
NAME = "example_tool_call_multireward"


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object", **parameters}, "strict": True}


TOOLS = [
    tool("get_weather", required=["city", "unit"]),
    tool("get_local_time", required=["city"]),
    tool("go"),
]
EXPECTED = {"name": "get_weather", "arguments": {"city": "Turku", "unit": "celsius"}}
RIGHT = call("get_weather", {"unit": "celsius", "city": "Turku"})
EMPTY = {"type": "message", "role": "assistant", "content": []}


def task(*tools: Any, **fields: Any) -> bytes:
    return row(responses_create_params={"input": "go", "tools": [*tools]}, **fields)


TASK = task(*TOOLS, expected_call=EXPECTED)


@table(
    ("items", "correctness", "schema_valid", "form"),
    [
        ([RIGHT], 1, 1, 1),
        ([RIGHT, "0 °C"], 1, 1, 0),
        (["", RIGHT], 1, 1, 0),
        ([RIGHT, EMPTY], 1, 1, 0),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}, RIGHT], 1, 1, 1),
        ([RIGHT, RIGHT], 1, 1, 0),
        ([call("get_weather", {"city": "Turku", "unit": "fahrenheit"})], 0, 1, 1),
        ([call("get_weather", {"city": "Turku"})], 0, 0, 1),
        ([call("get_weather", {"city": "Turku", "unit": "celsius", "day": 1})], 1, 1, 1),
        ([call("get_weather", {"city": 1, "unit": "kelvin"})], 0, 1, 1),
        ([call("get_weather", "{")], 0, 0, 1),
        ([call("get_weather", ["city", "unit"])], 0, 0, 1),
        ([call("get_local_time", {"city": "Turku"})], 0, 1, 1),
        ([call("get_local_time", {"city": "Turku"}), RIGHT], 1, 1, 0),
        ([call("get_weather", {}), RIGHT], 1, 0, 0),
        ([call("go", {})], 0, 1, 1),
        ([call("get_tide", {})], 0, 1, 1),
        ([call("get_tide", "none")], 0, 0, 1),
        (["0 °C"], 0, 0, 0),
        ([], 0, 0, 0),
    ],
)
async def test_each_question_is_a_reward_of_its_own(
    items: list[Any], correctness: int, schema_valid: int, form: int
) -> None:
    verdict = await judge(NAME, TASK, *items)
    assert verdict.reward == correctness + schema_valid + form
    assert verdict.components == {
        "correctness": correctness,
        "schema_valid": schema_valid,
        "format": form,
    }
    assert verdict.fields == verdict.components


async def test_without_an_expected_call_none_is_correct() -> None:
    for fields in ({}, {"expected_call": None}):
        assert (await judge(NAME, task(*TOOLS, **fields), RIGHT)).components["correctness"] == 0.0


async def test_without_tools_nothing_is_required() -> None:
    assert (await judge(NAME, task(expected_call=EXPECTED), call("get_weather", {}))).reward == 2.0


def test_tools_that_cannot_be_read_are_the_rows_fault() -> None:
    with pytest.raises(TaskError, match="required"):
        catalogue.environment(NAME).resource.task(task(tool("go", required="city")))


async def test_rows_in_nemo_gyms_format_are_won_by_their_call() -> None:
    for line in nemo_gym_rows(NAME):
        wanted = json.loads(line)["expected_call"]
        assert (await judge(NAME, line, call(wanted["name"], wanted["arguments"]))).reward == 3.0
        assert (await judge(NAME, line, call(wanted["name"], {}))).reward == 1.0
