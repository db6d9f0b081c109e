from __future__ import annotations

from typing import Any

import pytest
from resources.judging import call, judge, outputs, row

pytestmark = pytest.mark.anyio
NAME = "example_tool_call_multireward"
TASK = row(expected_tool="get_weather", expected_arguments={"city": "Turku", "unit": "celsius"})
RIGHT = call("get_weather", {"unit": "celsius", "city": "Turku"})


@pytest.mark.parametrize(
    ("items", "correctness", "schema_valid", "form"),
    [
        ([RIGHT], 1, 1, 1),
        ([RIGHT, "0 °C"], 1, 1, 0),
        ([" ", RIGHT], 1, 1, 1),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}, RIGHT], 1, 1, 1),
        ([RIGHT, RIGHT], 1, 1, 0),
        ([call("get_weather", {"city": "Turku", "unit": "fahrenheit"})], 0, 1, 1),
        ([call("get_weather", {"city": "Turku"})], 0, 0, 1),
        ([call("get_weather", {"city": 1, "unit": "kelvin"})], 0, 1, 1),
        ([call("get_weather", {"city": "Turku", "unit": "celsius", "day": 1})], 0, 1, 1),
        ([call("get_weather", "{")], 0, 0, 1),
        ([call("get_weather", ["city", "unit"])], 0, 0, 1),
        ([call("get_local_time", {"city": "Turku"})], 0, 1, 1),
        ([call("get_local_time", {"city": "Turku"}), RIGHT], 1, 1, 0),
        ([call("get_tide", {"city": "Turku"})], 0, 0, 1),
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


async def test_the_tools_answer() -> None:
    calls: list[tuple[str, object]] = [
        ("get_weather", {"city": "Oulu", "unit": "fahrenheit"}),
        ("get_local_time", {"city": "Oulu"}),
    ]
    assert await outputs(NAME, TASK, calls) == [
        '{"city":"Oulu","temperature":32,"unit":"fahrenheit"}',
        '{"city":"Oulu","local_time":"12:00"}',
    ]
