"""Chat Completions in the eyes of the `openai` client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from faces.gateway.openai_client import CALL, CALLS, CUT, THINKS, USER, WEATHER, client
from faces.gateway.running_gateway import standing
from gym_testing.small_system import answer, reasoning

pytestmark = pytest.mark.anyio


CHAT_TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}


FILTERED = answer(status="incomplete", incomplete_details={"reason": "content_filter"})


async def completion(turn: Any, *, stream: bool, **more: Any) -> Any:
    """The client's completion, put together from its chunks where it was streamed."""
    async with standing(turn) as stand, client(stand) as openai_client:
        if not stream:
            return await openai_client.chat.completions.create(model="policy", messages=USER, **more)
        more["stream_options"] = {"include_usage": True}
        async with openai_client.chat.completions.stream(model="policy", messages=USER, **more) as events:
            return await events.get_final_completion()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_completion(stream: bool) -> None:
    said = await completion(THINKS, stream=stream)
    choice = said.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", "It rains.")
    assert choice.message.reasoning_content == "hm"
    assert choice.finish_reason == "stop"
    assert choice.message.tool_calls is None
    assert said.id == "chatcmpl-7"
    assert said.model == "scripted"
    assert (said.usage.prompt_tokens, said.usage.completion_tokens, said.usage.total_tokens) == (10, 2, 12)


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_calls_in_a_completion(stream: bool) -> None:
    # Older clients stream calls of strict tools only.
    tool = CHAT_TOOL | {"function": {**CHAT_TOOL["function"], "strict": True}}
    said = await completion(CALLS, stream=stream, tools=[tool])
    choice = said.choices[0]
    assert choice.message.content == "Let me see."
    assert choice.finish_reason == "tool_calls"
    assert [(one.id, one.function.name, one.function.arguments) for one in choice.message.tool_calls] == [
        ("call_1", "weather", '{"city": "Ulm"}'),
        ("call_2", "weather", "{}"),
    ]


@pytest.mark.parametrize(
    ("turn", "reason"), [(CUT, "length"), (FILTERED, "content_filter"), (answer(""), "stop")]
)
async def test_why_a_completion_ends(turn: Any, reason: str) -> None:
    said = await completion(turn, stream=False)
    assert said.choices[0].finish_reason == reason


async def test_chunks_come_in_the_order_of_the_api() -> None:
    async with standing(answer(reasoning("hm"), "so", CALL)) as stand, client(stand) as made:
        wanted: Any = {"model": "policy", "messages": USER, "stream": True}
        stream = await made.chat.completions.create(**wanted, stream_options={"include_usage": True})
        chunks = [chunk.model_dump(exclude_unset=True) async for chunk in stream]
        plain = [chunk async for chunk in await made.chat.completions.create(**wanted)]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas[0] == {"role": "assistant", "content": "", "refusal": None}
    assert [sorted(delta) for delta in deltas[1:]] == [
        ["reasoning_content"],
        ["content"],
        ["tool_calls"],
        ["tool_calls"],
        [],
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [*[None] * 5, "tool_calls"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 13
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 6
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert [chunk.usage for chunk in plain] == [None] * 6


async def test_a_conversation_with_tools_over_chat() -> None:
    async with standing(CALLS, answer("It rains.")) as stand, client(stand) as made:
        messages: list[Any] = [{"role": "system", "content": "be brief"}, *USER]
        first = await made.chat.completions.create(
            model="policy", messages=messages, tools=[CHAT_TOOL], tool_choice="required", temperature=0.5
        )
        messages.append(first.choices[0].message.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": one.id, "content": "rain"}
            for one in first.choices[0].message.tool_calls or ()
        ]
        second = await made.chat.completions.create(model="policy", messages=messages, tools=[CHAT_TOOL])
    assert second.choices[0].message.content == "It rains."
    call, context = stand.engine.calls.items[1]
    assert context.rollout == "r.0.0"
    kinds = [json.loads(bytes(raw)).get("type", "message") for raw in call.input]
    assert kinds == ["message"] * 3 + ["function_call"] * 2 + ["function_call_output"] * 2
    params = json.loads(bytes(stand.engine.calls.items[0][0].params))
    assert (params["temperature"], params["tool_choice"]) == (0.5, "required")
    assert params["tools"][0]["name"] == "weather"
