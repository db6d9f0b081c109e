"""The Responses API in the eyes of the `openai` client."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from faces.gateway.openai_client import CALL, CALLS, CUT, THINKS, TOOL, client, response
from faces.gateway.running_gateway import standing
from gym_runtime.messages.calls import ModelAnswer
from gym_testing.small_system import answer, reasoning
from msgspec import Raw

pytestmark = pytest.mark.anyio


REFUSED = answer(
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I won't."}]}
)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
async def test_a_response(stream: bool) -> None:
    said = await response(THINKS, stream=stream, temperature=0.25, metadata={"a": "b"})
    assert said.output_text == "It rains."
    assert [one.type for one in said.output] == ["reasoning", "message"]
    assert said.output[0].summary[0].text == "hm"
    assert (said.id, said.status, said.model) == ("resp_7", "completed", "scripted")
    assert said.usage.total_tokens == 12
    assert (said.temperature, said.metadata, said.tool_choice) == (0.25, {"a": "b"}, "auto")


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_calls_in_a_response(stream: bool) -> None:
    said = await response(CALLS, stream=stream, tools=[TOOL])
    calls = [one for one in said.output if one.type == "function_call"]
    assert all(one.id for one in calls), "some clients require what an engine may leave out"
    assert [(one.call_id, one.name, one.arguments) for one in calls] == [
        ("call_1", "weather", '{"city": "Ulm"}'),
        ("call_2", "weather", "{}"),
    ]


async def test_events_come_in_the_order_of_the_api() -> None:
    turn = answer(reasoning("hm"), "so", CALL)
    async with standing(turn) as stand, client(stand) as made:
        events = [one async for one in await made.responses.create(model="policy", input="?", stream=True)]
    assert [one.sequence_number for one in events] == list(range(len(events)))
    assert [one.type.removeprefix("response.") for one in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    begun: Any = events[0]
    assert (begun.response.status, begun.response.output) == ("in_progress", [])
    items: list[Any] = [one.item for one in events if one.type == "response.output_item.done"]  # type: ignore[union-attr]
    last: Any = events[-1]
    assert items == last.response.output
    assert all(item.id for item in items)


async def test_a_request_laid_out_in_lines_gets_a_stream_with_an_event_per_line() -> None:
    """A response repeats its request's tools, as the JSON that they are: a line break would end the data."""
    turn = answer("so")
    laid_out = Raw(msgspec.json.format(turn.response, indent=2).replace(b"\n", b"\r\n"))
    body = json.dumps({"model": "m", "input": "?", "stream": True, "tools": [TOOL]}, indent=2).encode()
    async with standing(ModelAnswer(response=laid_out)) as stand:
        _, said, _ = await stand.post("/v1/responses", body)
    lines = [line for line in said.splitlines() if line]
    events = [json.loads(line.removeprefix(b"data: ")) for line in lines[1::2]]
    assert [line.removeprefix(b"event: ").decode() for line in lines[::2]] == [one["type"] for one in events]
    assert [events[0]["response"]["tools"], events[-1]["response"]["usage"]["input_tokens"]] == [[TOOL], 10]


async def test_a_response_that_stops_short_and_one_that_refuses() -> None:
    async with standing(CUT, REFUSED) as stand, client(stand) as made:
        *_, last = [one async for one in await made.responses.create(model="m", input="?", stream=True)]
        ended: Any = last
        assert ended.type == "response.incomplete"
        assert ended.response.incomplete_details.reason == "max_output_tokens"
        events: list[Any] = [
            one async for one in await made.responses.create(model="m", input="?", stream=True)
        ]
    assert [(one.delta) for one in events if one.type == "response.refusal.delta"] == ["I won't."]


async def test_a_conversation_with_tools_over_responses() -> None:
    async with standing(answer(reasoning("hm"), CALL), answer("It rains.")) as stand, client(stand) as made:
        said: list[Any] = [{"role": "user", "content": "weather?"}]
        first = await made.responses.create(
            model="policy", input=said, tools=[TOOL], instructions="Be brief."
        )
        said += [one.model_dump(exclude_none=True) for one in first.output]
        said.append({"type": "function_call_output", "call_id": "call_1", "output": "rain"})
        second = await made.responses.create(model="policy", input=said, tools=[TOOL])
    assert second.output_text == "It rains."
    call, _ = stand.engine.calls.items[1]
    kinds = [json.loads(bytes(raw)).get("type", "message") for raw in call.input]
    assert kinds == ["message", "reasoning", "function_call", "function_call_output"]
    assert json.loads(bytes(stand.engine.calls.items[0][0].params))["instructions"] == "Be brief."
