"""The three ``example_*`` environments: their tools' answers and their rules, call by call."""

from __future__ import annotations

from typing import Any

import pytest
from resources.judging import call, judge, outputs, row
from tables import table

pytestmark = pytest.mark.anyio


async def test_the_weather_is_cold_and_every_rollout_is_worth_one() -> None:
    name = "example_single_tool_call"
    assert await outputs(name, row(), [("get_weather", {"city": "Rome"})]) == [
        '{"city":"Rome","weather_description":"The weather in Rome is cold."}'
    ]
    assert (await judge(name, row())).reward == 1.0
    assert (await judge(name, row(), "It is hot.")).reward == 1.0


async def test_the_counter_counts_from_the_rows_start() -> None:
    name, task = "example_session_state_mgmt", row(initial_count=3, expected_count=6)
    assert await outputs(
        name,
        task,
        [
            ("get_counter_value", {}),
            ("increment_counter", {"count": 1}),
            ("increment_counter", {"count": 2}),
            ("get_counter_value", {}),
        ],
    ) == ['{"count":3}', '{"success":true}', '{"success":true}', '{"count":6}']


@table(
    ("counts", "reward"), [([3], 1.0), ([1, 2], 1.0), ([5, -2], 1.0), ([2], 0.0), ([], 0.0), (["x", 3], 1.0)]
)
async def test_the_counter_must_end_at_the_expected_count(counts: list[Any], reward: float) -> None:
    task = row(initial_count=3, expected_count=6)
    items: list[dict[str, Any]] = []
    for count in counts:
        made = call("increment_counter", {"count": count})
        items += [made, {"type": "function_call_output", "call_id": made["call_id"], "output": "{}"}]
    assert (await judge("example_session_state_mgmt", task, *items, "Done.")).reward == reward


async def test_a_synonyms_value_is_the_sum_of_its_code_points() -> None:
    task = multi_step_row()
    assert await outputs(
        "example_multi_step",
        task,
        [("get_synonym_value", {"synonym": "Warm"}), ("extract_synonym_values", {"synonym_values": [1]})],
    ) == ['{"synonym_value":407}', '{"success":true}']


def multi_step_row() -> bytes:
    return row(
        id=0,
        expected_synonyms=["Blazing", "Warm"],
        expected_synonym_values=[711, 407],
        minefield_label="Hot",
        minefield_label_value=299,
    )


def extract(values: object) -> dict[str, Any]:
    return call("extract_synonym_values", {"synonym_values": values})


@table(
    ("items", "reward", "overlap", "minefield", "misordered"),
    [
        ([extract([711, 407])], 1.0, 1.0, False, False),
        ([extract([407, 711])], 0.0, 1.0, False, True),
        ([extract([711])], 0.0, 0.5, False, False),
        ([extract([299])], 0.0, 0.0, True, False),
        ([extract([711, 407, 299])], 0.0, 1.0, True, False),
        ([extract([711, 711, 407])], 0.0, 1.0, False, False),
        ([extract([407]), extract([711, 407])], 1.0, 1.0, False, False),
        ([extract([711, 407]), extract([407])], 0.0, 0.5, False, False),
        ([extract([])], 0.0, 0.0, False, False),
        ([extract("711, 407")], 0.0, 0.0, False, False),
        ([call("extract_synonym_values", "{")], 0.0, 0.0, False, False),
        ([call("get_synonym_value", {"synonym": "Hot"})], 0.0, 0.0, False, False),
        (["711, 407"], 0.0, 0.0, False, False),
    ],
)
async def test_the_last_extraction_counts_and_the_row_says_what_went_wrong(
    items: list[Any], reward: float, overlap: float, minefield: bool, misordered: bool
) -> None:
    verdict = await judge("example_multi_step", multi_step_row(), *items)
    assert verdict.reward == reward
    assert verdict.fields == {
        "accuracy": reward == 1.0,
        "set_overlap": overlap,
        "original_term_minefield_hit": minefield,
        "order_instruction_following_failure": misordered,
    }


async def test_nothing_handed_in_is_not_what_an_empty_list_expects() -> None:
    task = row(
        expected_synonyms=[], expected_synonym_values=[], minefield_label="Hot", minefield_label_value=299
    )
    assert (await judge("example_multi_step", task, "Nothing.")).reward == 0.0
    assert (await judge("example_multi_step", task, extract([]))).reward == 1.0
