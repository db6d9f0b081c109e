"""A row's fields, and its numbers."""

from __future__ import annotations

import anyio
import msgspec
import pytest
from gym_runtime import Environment, Verdict
from gym_runtime.errors import ModelRefused
from gym_runtime.files.sample import sample_row
from gym_runtime.messages.outcomes import Completed, Outcome, Truncated
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    environment,
    function_call,
    rollout_spec,
    small_system,
)
from msgspec import Raw
from runtime.rollout.made_records import Bench, make, row_of

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


# facts/nemo-gym.md, section 3.4
PARAMS = """background include input instructions max_output_tokens max_tool_calls metadata model
    parallel_tool_calls previous_response_id prompt reasoning service_tier store temperature text tool_choice
    tools top_logprobs top_p truncation user stream"""


RESPONSE = """id created_at model object output usage status incomplete_details error instructions metadata
    parallel_tool_calls temperature top_p tool_choice tools text reasoning truncation max_output_tokens
    max_tool_calls previous_response_id prompt service_tier store top_logprobs user background
    prompt_cache_key safety_identifier conversation"""


async def test_the_fields_and_their_order() -> None:
    record = await make(
        fields={"goal": 1, "verifier_metadata": {"a": 1}},
        verdict=Verdict(0.5, components={"style": 0.5}, fields={"extracted_answer": "done"}),
        task=3,
        rollout=2,
        agent_ref=Raw(b'{"type":"responses_api_agents","name":"bench_simple_agent"}'),
    )
    row = row_of(record)
    assert list(row) == [
        "responses_create_params",
        "response",
        "reward",
        "goal",
        "verifier_metadata",
        "extracted_answer",
        "reward_components",
        "_ng_task_index",
        "_ng_rollout_index",
        "agent_ref",
        "_gym",
    ]
    assert (row["_ng_task_index"], row["_ng_rollout_index"]) == (3, 2)
    assert row["agent_ref"] == {"type": "responses_api_agents", "name": "bench_simple_agent"}
    assert row["reward_components"] == {"style": 0.5}
    assert row["extracted_answer"] == "done"


async def test_params_and_response_have_every_field_nulls_included() -> None:
    row = row_of(await make())
    assert row["responses_create_params"] | {"input": None} == dict.fromkeys(PARAMS.split()) | {
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    assert sorted(row["response"]) == sorted(RESPONSE.split())
    assert row["response"]["object"] == "response"
    assert row["response"]["status"] == "completed"


async def test_without_an_agent_ref_the_row_names_its_environment() -> None:
    assert row_of(await make())["agent_ref"] == {"name": "sample"}


async def test_without_components_there_is_no_field_for_them() -> None:
    assert "reward_components" not in row_of(await make())


async def test_the_time_in_the_queue_is_told() -> None:
    waited_s = 3.0

    async def agent_later(system: SmallSystem) -> None:
        await anyio.sleep(waited_s)
        await system.add_agent()

    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=Bench, description=""), "sample"))
        await system.add_model(Engine(answer("done")))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent_later, system)
            row = b'{"responses_create_params":{"input":"go"}}'
            (record,) = await system.make(rollout_spec(row))
    gym = row_of(record)["_gym"]
    assert gym["timing"]["queue_s"] >= waited_s - 0.1
    assert gym["duration_s"] < gym["timing"]["queue_s"] + 1, "the attempt does not count it"


async def test_what_only_this_runtime_knows_stands_apart() -> None:
    record = await make(answer(function_call("work")), answer("done"), max_turns=2, run="r", attempt_base=1)
    gym = row_of(record)["_gym"]
    duration_s, timing = gym.pop("duration_s"), gym.pop("timing")
    assert [sorted(turn) for turn in timing["turns"]] == [["model_s", "tool_s"], ["model_s"]]
    turns_s = sum(sum(turn.values()) for turn in timing["turns"])
    assert 0 <= turns_s + timing.get("verify_s", 0) <= duration_s + 0.01
    assert gym == {
        "rollout_id": "r.0.0",
        "environment": "sample",
        "attempt": 2,
        "outcome": {"type": "completed"},
        "turns": 2,
        "tool_calls": 1,
        "resumed_turns": 0,
        "rebuilt_sessions": 0,
    }


@pytest.mark.parametrize(("max_turns", "outcome"), [(1, Truncated(reason="max_turns")), (2, Completed())])
async def test_the_record_says_what_the_row_says(max_turns: int, outcome: Outcome) -> None:
    record = await make(answer(function_call("work")), answer("done"), max_turns=max_turns)
    assert record.outcome == outcome
    row = row_of(record)
    assert msgspec.convert(row["_gym"]["outcome"], Outcome) == outcome
    assert (record.reward, record.turns) == (row["reward"], row["_gym"]["turns"])


async def test_a_failed_row_has_everything_but_a_reward() -> None:
    record = await make(answer(function_call("work")), ModelRefused("no"), fields={"goal": 1})
    row = row_of(record)
    assert "reward" not in row
    assert [item["type"] for item in row["response"]["output"]] == ["function_call", "function_call_output"]
    assert row["_gym"]["outcome"]["fault"]["message"] == "no"
    assert record.numbers == {"goal": 1.0, "input_tokens": 10, "output_tokens": 1, "total_tokens": 11}


async def test_a_row_that_is_no_task_is_kept_as_far_as_it_goes() -> None:
    async with small_system() as system:
        await system.add_agent()
        bad = [b'{"responses_create_params": {"tools": 5}, "goal": 2}', b"[1, 2]", b'"text"']
        records = await system.make(*[rollout_spec(row, task=task) for task, row in enumerate(bad)])
    rows = {record.task_index: row_of(record) for record in records}
    assert (rows[0]["responses_create_params"], rows[0]["goal"]) == ({"tools": 5}, 2)
    assert list(rows[1]) == list(rows[2]) == ["_ng_task_index", "_ng_rollout_index", "agent_ref", "_gym"]


async def test_a_verifier_cannot_overwrite_what_is_not_its_own() -> None:
    theirs = dict.fromkeys(
        ("response", "reward", "agent_ref", "_ng_task_index", "_gym", "_ng_failure"), "mine"
    )
    row = row_of(await make(verdict=Verdict(0.25, fields={**theirs, "goal": "changed"}), fields={"goal": 1}))
    assert "_ng_failure" not in row
    assert row["reward"] == 0.25
    assert row["goal"] == "changed"
    assert row["response"]["output"][0]["content"][0]["text"] == "done"
    assert row["agent_ref"] == {"name": "sample"}


async def test_a_dataset_cannot_make_a_success_look_failed() -> None:
    marks = {"_ng_failure_class": "agent", "_ng_failure": {"kind": "task"}, "_ng_failure_judge_error": "x"}
    record = await make(fields=marks)
    assert isinstance(record.outcome, Completed)
    sample = sample_row(bytes(record.row))
    assert (sample.outcome, sample.failure) == ("completed", "")


async def test_the_rows_own_bytes_are_kept() -> None:
    strange = Raw(b'{"b": 1.50, "a":  [1e3, "\\u00e9"]}')
    record = await make(fields={"strange": strange})
    assert bytes(strange) in bytes(record.row)


async def test_numbers_are_the_numeric_fields_of_the_row() -> None:
    record = await make(
        fields={"goal": 3, "level": 1.5, "easy": True, "name": "x", "nothing": None, "list": [1]},
        verdict=Verdict(0.5, components={"style": 0.25}, fields={"length": 7, "correct": False, "why": "?"}),
    )
    assert record.numbers == {
        "goal": 3.0,
        "level": 1.5,
        "easy": 1.0,
        "style": 0.25,
        "length": 7.0,
        "correct": 0.0,
        "reward": 0.5,
        "input_tokens": 10.0,
        "output_tokens": 1.0,
        "total_tokens": 11.0,
    }


async def test_a_field_that_is_no_number_any_more_is_no_number() -> None:
    record = await make(fields={"level": 3}, verdict=Verdict(1.0, fields={"level": "three"}))
    assert "level" not in record.numbers


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"9" * 400])
async def test_numbers_beyond_what_json_can_say_again_do_not_break_the_record(number: bytes) -> None:
    record = await make(fields={"level": Raw(number)})
    assert record.outcome == Completed()
    assert "level" not in record.numbers
    assert number in bytes(record.row)
