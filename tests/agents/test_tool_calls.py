"""What the tool loop sends and keeps, and tools at once."""

from __future__ import annotations

import json
from typing import Any

import anyio
import msgspec
import pytest
from agents.kitchen import ADD_1, Kitchen, play
from gym_runtime import Environment, clock
from gym_runtime.messages.outcomes import Completed
from gym_testing.background import Mailbox
from gym_testing.small_system import (
    Engine,
    Item,
    answer,
    environment,
    function_call,
    reasoning,
    rollout_spec,
    small_system,
)

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_each_call_of_the_model_shows_it_everything_so_far() -> None:
    played = await play(answer(reasoning("hm"), ADD_1), answer("done"))
    assert played.inputs() == [["cook"], ["cook", "…", "add()", ("c1", '{"amount":1}')]]


async def test_the_rows_settings_go_to_the_model_and_its_input_only_once() -> None:
    row = msgspec.json.encode(
        {
            "responses_create_params": {
                "input": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "cook"}],
                "temperature": 0.5,
                "tools": [{"type": "function", "name": "add", "parameters": {}}],
            }
        }
    )
    played = await play(answer("done"), row=row)
    ((call, _),) = played.engine.calls.items
    params = msgspec.json.decode(call.params)
    assert (params["temperature"], params["tools"][0]["name"], params["input"]) == (0.5, "add", [])
    assert played.inputs() == [["be brief", "cook"]]


async def test_the_response_is_the_last_one_with_all_items_and_all_usage() -> None:
    played = await play(
        answer(ADD_1, id="first", model="a"), answer("done", id="last", model="b", metadata={"k": "v"})
    )
    response = played.row["response"]
    assert (response["id"], response["model"], response["metadata"]) == ("last", "b", {"k": "v"})
    assert played.output == ["add()", ("c1", '{"amount":1}'), "done"]
    assert response["usage"] == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 22,
    }


async def test_items_are_kept_to_the_byte() -> None:
    strange: Item = {
        "type": "message",
        "role": "assistant",
        "new_field": {"b": 1, "a": [None]},
        "content": [],
    }
    played = await play(answer(strange))
    assert json.dumps(played.row["response"]["output"][0]) == json.dumps(strange)


def cooking(*minutes: float) -> Any:
    return answer(
        *[
            function_call("cook", json.dumps({"minutes": each}), f"c{place}")
            for place, each in enumerate(minutes)
        ]
    )


async def test_tools_run_one_after_the_other_unless_the_environment_allows_more() -> None:
    started_s = clock.monotonic()
    played = await play(cooking(3, 1, 2), answer("done"))
    assert 360 <= clock.monotonic() - started_s < 365
    assert played.output[3:6] == [("c0", "3.0"), ("c1", "1.0"), ("c2", "2.0")]


async def test_tools_at_once_keep_their_order_and_share_one_session() -> None:
    started_s = clock.monotonic()
    played = await play(cooking(3, 1, 2), answer("done"), parallel_tools=True)
    assert 180 <= clock.monotonic() - started_s < 185
    assert played.output[3:6] == [("c0", "3.0"), ("c1", "1.0"), ("c2", "2.0")]
    assert played.ledger == ["open", "cooked", "cooked", "cooked"]
    assert played.record.tool_calls == 3


async def test_what_goes_wrong_in_one_of_several_tools_is_its_answer_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    turn = answer(function_call("crash"), function_call("add", "{"), function_call("write"))
    played = await play(turn, answer("done"), parallel_tools=True)
    outputs = [output for _, output in played.output[3:6]]
    assert outputs[0] == "Internal Server Error"
    assert "Invalid tool call arguments" in outputs[1]
    assert outputs[2] == "as it is"
    assert played.record.outcome == Completed()


async def test_losing_the_session_during_tools_at_once_makes_a_new_attempt() -> None:
    ledger: Mailbox[str] = Mailbox()
    kitchen = type("NotedKitchen", (Kitchen,), {"ledger": ledger})
    loaded = environment(Environment(resource=kitchen, description=""), "sample")
    async with small_system() as system:
        await system.add_resource(loaded)
        await system.add_model(Engine(cooking(1, 2), answer("done")))
        await system.add_agent()
        await system.enqueue(
            rollout_spec(
                b'{"responses_create_params": {"input": "Cook."}}', parallel_tools=True, replayable=False
            )
        )
        await ledger.until(1)
        await anyio.sleep(1)
        await system.add_resource(loaded, name="resource-2")
        system.kill("resource-1")
        (record,) = await system.records(1)
    assert (record.outcome, record.attempt) == (Completed(), 2)
