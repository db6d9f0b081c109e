"""Token ids in a row."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from gym_models.scripted import Adapter as Scripted
from gym_runtime import Environment
from gym_runtime.messages.calls import Tokens, WeightSpan
from gym_runtime.workers.adapter import ModelSettings
from gym_testing.small_system import (
    answer,
    environment,
    function_call,
    message,
    rollout_spec,
    small_system,
)
from msgspec import Raw
from runtime.rollout.made_records import Bench, make, row_of

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


def ints(*values: int) -> bytes:
    return array("i", values).tobytes()


async def test_token_ids_stand_on_the_last_item_of_each_call() -> None:
    tokens = [
        Tokens(
            prompt_ids=ints(1, 2),
            generation_ids=ints(3, 4, 5),
            log_probs=array("f", [-0.5, -0.25, 0.0]).tobytes(),
            weights=[WeightSpan(version="7", start=0, end=3)],
        ),
        Tokens(
            prompt_ids=ints(1, 2, 3, 4, 5, 6), generation_ids=ints(7), log_probs=array("f", [-1]).tobytes()
        ),
    ]
    turns = [
        msgspec.structs.replace(answer(*output), tokens=given)
        for output, given in zip([["first", function_call("work")], ["done"]], tokens, strict=True)
    ]
    items = row_of(await make(*turns, return_tokens=True))["response"]["output"]
    first, call, output, last = items
    assert call == {
        **function_call("work"),
        "prompt_token_ids": [1, 2],
        "generation_token_ids": [3, 4, 5],
        "generation_log_probs": [-0.5, -0.25, 0.0],
        "weight_versions": [{"version": "7", "start": 0, "end": 3}],
    }
    assert last == {
        **message("done"),
        "prompt_token_ids": [1, 2, 3, 4, 5, 6],
        "generation_token_ids": [7],
        "generation_log_probs": [-1.0],
    }
    assert first == message("first")
    assert output["type"] == "function_call_output"


@pytest.mark.parametrize(
    "calls",
    [
        [([1, 2], [3]), ([1, 2, 3, 4], [5]), ([1, 2, 3, 4, 5], [6, 7])],
        [([1, 2], [3]), ([1, 2, 9, 4], [5]), ([1, 2, 9, 4, 5, 6], [7]), ([8], [])],
        [([], []), ([], [3]), ([3], []), ([3, 4], [5])],
        [([1], [2]), ([1], [3]), ([], [4]), ([4, 5], [6])],
    ],
    ids=["continued", "rewritten", "empty", "shorter"],
)
async def test_each_prompt_is_written_whole_whatever_it_continues(
    calls: list[tuple[list[int], list[int]]],
) -> None:
    turns = [
        msgspec.structs.replace(
            answer(function_call("work") if number < len(calls) else "done"),
            tokens=Tokens(prompt_ids=ints(*prompt), generation_ids=ints(*generated)),
        )
        for number, (prompt, generated) in enumerate(calls, 1)
    ]
    items = row_of(await make(*turns, return_tokens=True))["response"]["output"]
    written = [item for item in items if "prompt_token_ids" in item]
    assert [(item["prompt_token_ids"], item["generation_token_ids"]) for item in written] == calls


async def test_an_item_in_any_spelling_takes_token_ids() -> None:
    turn = msgspec.structs.replace(
        answer(), response=Raw(b'{"output": [{"type":"odd"\n }]}'), tokens=Tokens()
    )
    record = await make(turn, msgspec.structs.replace(answer("done"), tokens=Tokens()))
    assert row_of(record)["response"]["output"][0] == {
        "type": "odd",
        "prompt_token_ids": [],
        "generation_token_ids": [],
        "generation_log_probs": [],
    }


@pytest.mark.parametrize("return_tokens", [True, False])
async def test_tokens_come_when_they_are_asked_for(return_tokens: bool) -> None:
    row = b'{"responses_create_params": {"input": "go", "tools": [{"type": "function", "name": "work"}]}}'
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=Bench, description=""), "sample"))
        await system.add_model(Scripted(ModelSettings.parse("scripted/tool-then-message")))
        await system.add_agent()
        (record,) = await system.make(rollout_spec(row, return_tokens=return_tokens))
    has_tokens = ["generation_token_ids" in item for item in row_of(record)["response"]["output"]]
    assert has_tokens == [return_tokens, False, return_tokens]
