"""The gateway in the eyes of the `openai` client, in both of its APIs."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import openai
import pytest
from gym_runtime.errors import ModelRefused, ModelUnavailable
from gym_runtime.testing.small_system import answer, function_call, reasoning
from runtime.gateway.running_gateway import RunningGateway, standing

pytestmark = pytest.mark.anyio

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
TOOL: Any = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}
CALL = function_call("weather", '{"city": "Ulm"}', "call_1")
THINKS = answer(reasoning("hm"), "It rains.", id="resp_7")
CALLS = answer("Let me see.", CALL, function_call("weather", "{}", "call_2"))
CUT = answer("It r", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
FILTERED = answer(status="incomplete", incomplete_details={"reason": "content_filter"})
REFUSED = answer(
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I won't."}]}
)
USER: Any = [{"role": "user", "content": "weather?"}]


@asynccontextmanager
async def client(stand: RunningGateway, rollout: str = "r.0.0") -> AsyncGenerator[openai.AsyncOpenAI]:
    base_url = f"{stand.url}{stand.at(rollout)}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as made:
        yield made


# -- Chat Completions ------------------------------------------------------------------------------------


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
    said = await completion(CALLS, stream=stream, tools=[CHAT_TOOL])
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


# -- Responses API ---------------------------------------------------------------------------------------


async def response(turn: Any, *, stream: bool, **more: Any) -> Any:
    """The client's response, put together from its events where it was streamed."""
    more = {"model": "policy", "input": "weather?", **more}
    async with standing(turn) as stand, client(stand) as made:
        if not stream:
            return await made.responses.create(**more)
        async with made.responses.stream(**more) as events:
            return await events.get_final_response()


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


# -- both ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("turn", "error"),
    [(ModelRefused("no such thing"), openai.BadRequestError), (None, openai.BadRequestError)],
)
async def test_errors_have_the_clients_classes(turn: Any, error: type[Exception], stream: bool) -> None:
    more: Any = {"stream": True} if stream else {}
    async with standing(turn or answer("x")) as stand, client(stand) as made:
        with pytest.raises(error, match="no such thing" if turn else "cannot be carried"):
            tools: Any = None if turn else [{"type": "custom", "custom": {"name": "x"}}]
            await made.chat.completions.create(model="m", messages=USER, tools=tools, **more)
        with pytest.raises(error, match="no such thing" if turn else "not stored"):
            earlier: Any = None if turn else "resp_1"
            await made.responses.create(model="m", input="?", previous_response_id=earlier, **more)


async def test_an_error_in_a_stream_that_has_begun() -> None:
    class Engine:
        async def respond(self, call: Any, context: Any) -> Any:
            await until.wait()
            raise ModelRefused("no such thing")

    until = anyio.Event()
    async with standing(Engine(), quiet_s=0.01) as stand, client(stand) as made:
        async with made.responses.stream(model="m", input="?") as stream:  # its headers say: at work
            until.set()
            events = [event async for event in stream]
        assert [event.type for event in events] == ["response.created", "response.failed"]
        failed: Any = events[-1]
        assert failed.response.status == "failed"
        assert (failed.response.error.code, failed.response.error.message) == (
            "invalid_prompt",
            "no such thing",
        )
        until = anyio.Event()
        chunks = await made.chat.completions.create(model="m", messages=USER, stream=True)
        until.set()
        with pytest.raises(openai.APIError, match="no such thing"):
            await anext(chunks)


async def test_what_may_pass_says_when_to_ask_again() -> None:
    # The worker would wait longer than the deadline allows before it asks its engine again.
    async with standing(ModelUnavailable("overloaded"), timeout_s=0.1) as stand, client(stand) as made:
        with pytest.raises(openai.InternalServerError, match="overloaded") as caught:
            await made.chat.completions.create(model="m", messages=USER)
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"] == "1"
    assert caught.value.response.headers["x-should-retry"] == "true"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_in_a_namespace_as_codex_makes_it(stream: bool) -> None:
    """The client finds its tool by namespace and name; the model and its history know one longer name."""
    tools: Any = [{"type": "namespace", "name": "agents", "description": "Helpers.", "tools": [TOOL]}]
    called = function_call("agents__weather", '{"city":  "Ulm"}', "call_1")
    asked: Any = {"model": "policy", "tools": tools, "input": list(USER)}
    async with standing(answer(called), answer("It rains.")) as stand, client(stand) as made:
        if stream:
            async with made.responses.stream(**asked) as events:
                said = await events.get_final_response()
        else:
            said = await made.responses.create(**asked)
        (call,) = said.output
        assert (call.type, call.namespace, call.name) == ("function_call", "agents", "weather")
        asked["input"] += [
            {
                **call.model_dump(include={"type", "namespace", "name", "call_id"}),
                "arguments": '{"city":"Ulm"}',
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
        ]
        assert (await made.responses.create(**asked)).output_text == "It rains."
    first, second = (call for call, _ in stand.engine.calls.items)
    (offered,) = json.loads(bytes(first.params))["tools"]
    assert offered == {**TOOL, "name": "agents__weather", "description": "Helpers."}
    assert json.loads(bytes(second.input[1])) == called


async def test_log_probabilities_in_a_stream() -> None:
    logprobs = [{"token": "x", "bytes": [120], "logprob": -0.5, "top_logprobs": []}]
    part = {"type": "output_text", "text": "x", "annotations": [], "logprobs": logprobs}
    turn = answer({"type": "message", "id": "m", "role": "assistant", "content": [part]})
    async with standing(turn) as stand, client(stand) as made:
        asked: Any = {"model": "policy", "input": "hi", "top_logprobs": 1, "stream": True}
        found = {one.type: one async for one in await made.responses.create(**asked)}
    assert found["response.content_part.added"].part.logprobs == []
    for name in ("delta", "done"):
        assert [one.logprob for one in found[f"response.output_text.{name}"].logprobs] == [-0.5]


async def test_models_are_the_pools() -> None:
    async with standing(answer("x")) as stand, client(stand) as made:
        assert [model.id async for model in made.models.list()] == ["policy", "judge"]
