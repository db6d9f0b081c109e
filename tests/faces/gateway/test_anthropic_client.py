"""The gateway in the eyes of the `anthropic` client, where that is installed."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

import pytest
from faces.gateway.running_gateway import Counter, RunningGateway, standing
from gym_faces.dialects import responses_api
from gym_runtime.adapters import ModelAnswer
from gym_runtime.errors import ModelRefused, ModelUnavailable
from gym_testing.small_system import answer, function_call, reasoning

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find_spec("anthropic") is None, reason="could not import 'anthropic'"),
]

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA}
CALL = function_call("weather", '{"city": "Ulm"}', "call_1")
CALLS = answer(reasoning("hm"), "Let me see.", CALL, function_call("weather", "{}", "call_2"), id="resp_7")
USAGE = {
    "input_tokens": 10,
    "output_tokens": 2,
    "total_tokens": 12,
    "input_tokens_details": {"cached_tokens": 4},
}
CUT = answer("It r", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
FILTERED = answer(status="incomplete", incomplete_details={"reason": "content_filter"})
USER = [{"role": "user", "content": "weather?"}]


@asynccontextmanager
async def client(stand: RunningGateway) -> AsyncGenerator[Any]:
    import anthropic  # it takes seconds

    base_url = stand.url + stand.at("r.0.0")
    async with anthropic.AsyncAnthropic(base_url=base_url, api_key="none", max_retries=0) as made:
        yield made


async def message(turn: Any, *, stream: bool, **more: Any) -> Any:
    """The client's message, put together from its events where it was streamed."""
    more = {"model": "policy", "max_tokens": 100, "messages": USER, **more}
    async with standing(turn) as stand, client(stand) as made:
        if not stream:
            return await made.messages.create(**more)
        async with made.messages.stream(**more) as events:
            return await events.get_final_message()


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_that_is_too_long(stream: bool) -> None:
    import anthropic

    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: ") as refused:
        await message(ModelAnswer(response=responses_api.overflow("m")), stream=stream)
    body: Any = refused.value.body
    assert body["error"]["type"] == "invalid_request_error"


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
async def test_a_message_with_thinking_text_and_tools(stream: bool) -> None:
    said = await message(CALLS, stream=stream, tools=[TOOL])
    assert (said.role, said.model, said.stop_reason) == ("assistant", "scripted", "tool_use")
    again = await message(CALLS, stream=stream, tools=[TOOL])
    assert said.id != again.id, "also where the engine gives an id twice"
    assert [block.type for block in said.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert said.content[0].thinking == "hm"
    assert said.content[1].text == "Let me see."
    assert [(one.id, one.name, one.input) for one in said.content[2:]] == [
        ("call_1", "weather", {"city": "Ulm"}),
        ("call_2", "weather", {}),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
async def test_usage(stream: bool) -> None:
    usage = (await message(answer("x", usage=USAGE), stream=stream)).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (6, 4, 2)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("turn", "reason"), [(CUT, "max_tokens"), (FILTERED, "refusal"), (answer("x"), "end_turn")]
)
async def test_why_a_message_ends(turn: Any, reason: str, stream: bool) -> None:
    assert (await message(turn, stream=stream)).stop_reason == reason


async def test_arguments_that_are_no_object_reach_the_tool_as_text() -> None:
    said = await message(answer(function_call("weather", '{"city": ')), stream=False)
    assert said.content[0].input == {"arguments": '{"city": '}


async def test_events_come_in_the_order_of_the_api() -> None:
    async with standing(answer(reasoning("hm"), "so", CALL, usage=USAGE)) as stand:
        body = {"model": "m", "max_tokens": 9, "messages": USER, "stream": True}
        status, content, raw = await stand.post("/v1/messages", body)
    assert (status, raw.content_type) == (200, "text/event-stream")
    events = [event.split("\n") for event in content.decode().split("\n\n") if event]
    decoded = [json.loads(data.removeprefix("data: ")) for _, data in events]
    assert [name.removeprefix("event: ") for name, _ in events] == [one["type"] for one in decoded]
    assert [(one["type"], one.get("index")) for one in decoded] == [
        ("message_start", None),
        ("ping", None),
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        ("content_block_delta", 2),
        ("content_block_stop", 2),
        ("message_delta", None),
        ("message_stop", None),
    ]
    assert (decoded[0]["message"]["content"], decoded[0]["message"]["stop_reason"]) == ([], None)
    assert decoded[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    said = decoded[-2]["usage"]
    assert (said["input_tokens"], said["cache_read_input_tokens"], said["output_tokens"]) == (6, 4, 2)


async def test_a_conversation_with_tools() -> None:
    async with standing(CALLS, answer("It rains.")) as stand, client(stand) as made:
        more = {"model": "policy", "max_tokens": 100, "tools": [TOOL], "system": "be brief"}
        first = await made.messages.create(messages=USER, **more)
        results = [
            {"type": "tool_result", "tool_use_id": one.id, "content": [{"type": "text", "text": "rain"}]}
            for one in first.content
            if one.type == "tool_use"
        ]
        said = {"role": "assistant", "content": [one.model_dump(exclude_none=True) for one in first.content]}
        results.append({"type": "text", "text": "And?"})
        second = await made.messages.create(
            messages=[*USER, said, {"role": "user", "content": results}], **more
        )
    assert second.content[0].text == "It rains."
    call, context = stand.engine.calls.items[1]
    assert context.rollout == "r.0.0"
    items = [json.loads(bytes(raw)) for raw in call.input]
    assert [one.get("type", one.get("role")) for one in items] == [
        "system",
        "user",
        "reasoning",
        "message",
        *["function_call"] * 2,
        *["function_call_output"] * 2,
        "user",
    ]
    assert json.loads(items[4]["arguments"]) == {"city": "Ulm"}
    assert items[6]["output"] == [{"type": "input_text", "text": "rain"}]


async def test_the_clients_tool_runner_does_without_threads() -> None:
    import anthropic

    asked: list[str] = []

    @anthropic.beta_async_tool
    async def weather(city: str = "") -> str:
        """Tells it."""
        asked.append(city)
        return "rain"

    async with standing(CALLS, answer("It rains.")) as stand, client(stand) as made:
        more = {"model": "policy", "max_tokens": 100, "messages": USER}
        last = await made.beta.messages.tool_runner(tools=[weather], **more).until_done()
        assert last.content[0].text == "It rains."
        assert asked == ["Ulm", ""]
        assert len(stand.captures.calls("r.0.0") or ()) == 2, "a refused call is not recorded"
        with pytest.raises(anthropic.BadRequestError, match="thread: conversations are not kept") as caught:
            await made.beta.messages.create(thread={"type": "create"}, **more)
    body: Any = caught.value.body
    assert body["error"]["details"] == {"error_code": "thread_unsupported_request"}


async def test_an_image() -> None:
    data = base64.b64encode(b"png").decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    async with standing(answer("A cat.")) as stand, client(stand) as made:
        content = [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]
        await made.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": content}])
    ((call, _),) = stand.engine.calls.items
    (item,) = [json.loads(bytes(raw)) for raw in call.input]
    assert item["content"][0]["image_url"] == f"data:image/png;base64,{data}"


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("turn", "error", "kind"),
    [
        (ModelRefused("no such thing"), "BadRequestError", "invalid_request_error"),
        (ModelUnavailable("no such thing", retry_after_s=60), "OverloadedError", "overloaded_error"),
    ],
)
async def test_errors_have_the_clients_classes(turn: Any, error: str, kind: str, stream: bool) -> None:
    import anthropic

    async with standing(turn, timeout_s=9) as stand, client(stand) as made:
        with pytest.raises(anthropic.APIStatusError, match="no such thing") as caught:
            await made.messages.create(model="m", max_tokens=9, messages=USER, stream=stream)
    assert type(caught.value).__name__ == error
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == kind
    assert caught.value.request_id


async def test_tokens_are_counted_by_the_engine() -> None:
    async with standing(Counter()) as stand, client(stand) as made:
        counted = await made.messages.count_tokens(
            model="policy", messages=[*USER, *USER], system="Be brief.", tools=[TOOL]
        )
        assert counted.input_tokens == 43
        (asked,) = stand.engine.asked
        assert [one["name"] for one in json.loads(bytes(asked.params))["tools"]] == ["weather"]
        assert stand.captures.calls("r.0.0") is None, "it is no turn"


@pytest.mark.parametrize("more", [{}, {"count": None}])
async def test_what_cannot_be_counted_is_not_found(more: dict[str, Any]) -> None:
    import anthropic

    async with standing(answer("x"), **more) as stand, client(stand) as made:
        with pytest.raises(anthropic.NotFoundError, match="an answer's usage says how many") as caught:
            await made.messages.count_tokens(model="policy", messages=USER)
        assert caught.value.type == "not_found_error"
        assert not stand.engine.calls.items


async def test_models_and_their_errors_have_anthropics_form() -> None:
    import anthropic

    async with standing(answer("x")) as stand, client(stand) as made:
        listed = [one async for one in made.models.list()]
        assert [(one.id, one.display_name, one.created_at.year) for one in listed] == [
            ("policy", "policy", 1970),
            ("judge", "judge", 1970),
        ]
        with pytest.raises(anthropic.NotFoundError, match="there is no model 'gpt-5'") as caught:
            await made.models.retrieve("gpt-5")
        assert caught.value.type == "not_found_error"
