"""The gateway in the eyes of Google's client `google-genai`, where that is installed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from faces.gateway.running_gateway import Counter, RunningGateway, standing
from gym_faces.gateway.capture import Captures
from gym_runtime.errors import ModelRefused, ModelUnavailable
from gym_runtime.messages.calls import ModelAnswer, Prefix, Tokens
from gym_runtime.messages.responses import decode_response
from gym_testing.small_system import Engine, answer, function_call, reasoning
from runtime.environment.image_samples import png

pytestmark = [
    *(pytest.mark.anyio, pytest.mark.slow),
    pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning"),  # its own session of aiohttp
]

SCHEMA = {"type": "OBJECT", "properties": {"city": {"type": "STRING", "nullable": True}}}
TOOL = {"function_declarations": [{"name": "weather", "description": "Tells it.", "parameters": SCHEMA}]}
CALL = function_call("weather", '{"city": "Ulm"}', "call_1")
CALLS = answer(reasoning("hm"), "Let me see.", CALL, function_call("weather", "{}", "call_2"))
USAGE = {
    "input_tokens": 10,
    "output_tokens": 5,
    "total_tokens": 15,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens_details": {"reasoning_tokens": 2},
}
CUT = answer("It r", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
FILTERED = answer(status="incomplete", incomplete_details={"reason": "content_filter"})


@asynccontextmanager
async def client(stand: RunningGateway, **more: Any) -> AsyncGenerator[Any]:
    # Not above: it takes seconds, and each process of the tests collects every file.
    genai: Any = pytest.importorskip("google.genai", reason="needs Google's client: pip install google-genai")
    options = {"base_url": stand.url + stand.at("r.0.0"), "retry_options": {"attempts": 1}}
    told: dict[str, Any] = {"api_key": "none", "http_options": options, **more}
    made = genai.Client(**told)
    try:
        yield made.aio
    finally:
        await made.aio.aclose()
        made.close()


async def asked(made: Any, *, stream: bool, contents: Any = "weather?", **config: Any) -> list[Any]:
    """The responses of a call: one, or those of a stream."""
    given: dict[str, Any] = {"model": "policy", "contents": contents, "config": config}
    if not stream:
        return [await made.models.generate_content(**given)]
    return [one async for one in await made.models.generate_content_stream(**given)]


def parts(responses: list[Any]) -> list[Any]:
    return [part for one in responses for part in one.candidates[0].content.parts or []]


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking_text_and_tools(stream: bool) -> None:
    async with standing(CALLS) as stand, client(stand) as made:
        said = await asked(made, stream=stream, tools=[TOOL])
    assert len(said) == (4 if stream else 1)
    assert said[-1].model_version == "scripted"
    assert said[-1].candidates[0].finish_reason.value == "STOP"
    thought, text, *calls = parts(said)
    assert (thought.text, thought.thought, text.text) == ("hm", True, "Let me see.")
    assert [(one.function_call.id, one.function_call.args) for one in calls] == [
        ("call_1", {"city": "Ulm"}),
        ("call_2", {}),
    ]
    ((call, context),) = stand.engine.calls.items
    assert context.rollout == "r.0.0"
    (tool,) = json.loads(bytes(call.params))["tools"]
    assert tool["parameters"] == {"type": "object", "properties": {"city": {"type": ["string", "null"]}}}


@pytest.mark.parametrize("stream", [False, True])
async def test_usage(stream: bool) -> None:
    async with standing(answer("x", usage=USAGE)) as stand, client(stand) as made:
        usage = (await asked(made, stream=stream))[-1].usage_metadata
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (10, 4)
    assert (usage.candidates_token_count, usage.thoughts_token_count, usage.total_token_count) == (3, 2, 15)


@pytest.mark.parametrize("stream", [False, True])
async def test_why_an_answer_ends(stream: bool) -> None:
    for turn, reason in ((CUT, "MAX_TOKENS"), (FILTERED, "SAFETY"), (answer("x"), "STOP")):
        async with standing(turn) as stand, client(stand) as made:
            said = await asked(made, stream=stream)
        assert said[-1].candidates[0].finish_reason.value == reason


async def test_settings_reach_the_engine() -> None:
    config = {
        "system_instruction": "be brief",
        "temperature": 0.5,
        "top_k": 3,
        "max_output_tokens": 9,
        "stop_sequences": ["x"],
        "response_mime_type": "application/json",
        "response_schema": {"type": "ARRAY", "items": {"type": "INTEGER"}},
        "thinking_config": {"thinking_level": "LOW", "include_thoughts": True},
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["weather"]}},
        "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "tools": [TOOL],
    }
    async with standing(answer("[1]")) as stand, client(stand) as made:
        await asked(made, stream=False, **config)
    ((call, _),) = stand.engine.calls.items
    params = json.loads(bytes(call.params))
    assert json.loads(params["metadata"]["extra_body"]) == {"top_k": 3.0, "stop": ["x"]}
    assert (params["temperature"], params["max_output_tokens"]) == (0.5, 9)
    assert params["text"]["format"]["schema"] == {"type": "array", "items": {"type": "integer"}}
    assert params["reasoning"] == {"effort": "low"}
    assert params["tool_choice"] == {"type": "function", "name": "weather"}
    assert json.loads(bytes(call.input[0])) == {"role": "system", "content": "be brief"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_with_tools_goes_on_from_the_models_own_tokens(stream: bool) -> None:
    tokens = Tokens(prompt_ids=b"\1\0\0\0", generation_ids=b"\2\0\0\0", log_probs=b"\0\0\0\0")
    engine = Engine(ModelAnswer(response=CALLS.response, tokens=tokens), answer("It rains."))
    async with standing(engine, captures=Captures(), return_tokens=True) as stand, client(stand) as made:
        first = parts(await asked(made, stream=stream, tools=[TOOL]))
        calls = [one.function_call for one in first if one.function_call]
        results = [
            {"function_response": {"id": one.id, "name": one.name, "response": {"result": "rain"}}}
            for one in calls
        ]
        history = [
            {"role": "user", "parts": [{"text": "weather?"}]},
            {"role": "model", "parts": [one.model_dump(exclude_none=True) for one in first]},
            {"role": "user", "parts": [*results, {"text": "And?"}]},
        ]
        second = parts(await asked(made, stream=stream, contents=history, tools=[TOOL]))
    assert "".join(one.text for one in second) == "It rains."
    call, _ = stand.engine.calls.items[1]
    items = [json.loads(bytes(raw)) for raw in call.input]
    assert [one.get("type", one.get("role")) for one in items] == [
        *("user", "reasoning", "message"),
        *["function_call"] * 2,
        *["function_call_output"] * 2,
        "user",
    ]
    assert [one["output"] for one in items[5:7]] == ["rain", "rain"]
    assert call.prefix == Prefix(ids=b"\1\0\0\0\2\0\0\0", items=5, completion=1)
    assert list(map(bytes, call.input[2:5])) == list(map(bytes, decode_response(CALLS.response).output[1:]))


async def test_the_client_calls_functions_by_itself() -> None:
    """Its automatic function calling, as a harness of Google's kit uses it."""
    places: list[str] = []

    def weather(city: str) -> str:
        """Tells it."""
        places.append(city)
        return "rain"

    async with standing(answer(CALL), answer("It rains.")) as stand, client(stand) as made:
        said = await made.models.generate_content(
            model="policy", contents="weather?", config={"tools": [weather]}
        )
    assert (said.text, places) == ("It rains.", ["Ulm"])


async def test_images_and_answers_of_functions_with_images() -> None:
    data = bytes.fromhex("fbefbefbff")  # the client writes it in the alphabet of URLs
    image = {"inline_data": {"mime_type": "image/png", "data": data}}
    shown = {"inline_data": {"mime_type": "image/png", "data": "-----_8="}}  # and sends this as it is
    call: dict[str, Any] = {"function_call": {"name": "look", "args": {}}}
    seen = {"function_response": {"name": "look", "response": {"output": "ok"}, "parts": [shown]}}
    contents: list[Any] = [
        {"role": "user", "parts": [image, {"text": "What is it?"}]},
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [seen]},
    ]
    async with standing(answer("A cat.")) as stand, client(stand) as made:
        await asked(made, stream=False, contents=contents)
    ((asked_for, _),) = stand.engine.calls.items
    first, called, output = [json.loads(bytes(raw)) for raw in asked_for.input]
    url = "data:image/png;base64,+++++/8="
    assert first["content"][0]["image_url"] == output["output"][1]["image_url"] == url
    assert called["call_id"] == output["call_id"] == "call_1"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("turn", "code", "status"),
    [
        (ModelRefused("no such thing"), 400, "INVALID_ARGUMENT"),
        (ModelUnavailable("no such thing", retry_after_s=60), 503, "UNAVAILABLE"),
    ],
)
async def test_errors_have_the_clients_classes(turn: Any, code: int, status: str, stream: bool) -> None:
    from google.genai import errors

    async with standing(turn, timeout_s=9) as stand, client(stand) as made:
        with pytest.raises(errors.APIError, match="no such thing") as caught:
            await asked(made, stream=stream)
    assert (caught.value.code, caught.value.status) == (code, status)


class Late:
    """An engine that answers when the stream has begun."""

    def __init__(self, outcome: Any) -> None:
        self._outcome = outcome

    async def respond(self, call: Any, context: Any) -> Any:
        await anyio.sleep(0.3)  # for some rounds of the gateway's silence, which no event here shows
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


async def test_a_stream_that_waits_is_kept_open_by_what_the_client_skips() -> None:
    """Google's clients take a comment for JSON; and an error late in a stream is an error."""
    from google.genai import errors

    async with standing(Late(answer("x")), quiet_s=0.01) as stand, client(stand) as made:
        assert parts(await asked(made, stream=True))[0].text == "x"
    async with standing(Late(ModelRefused("no such thing")), quiet_s=0.01) as stand, client(stand) as made:
        with pytest.raises(errors.APIError, match="no such thing"):
            await asked(made, stream=True)


async def test_what_cannot_be_carried_is_refused_by_name() -> None:
    from google.genai import errors

    refused: list[tuple[dict[str, Any], str]] = [
        ({"tools": [{"google_search": {}}]}, "the hosted tool 'googleSearch' is not available"),
        ({"candidate_count": 2}, "candidateCount: there is one candidate"),
        ({"response_logprobs": True}, "responseLogprobs: this cannot be carried"),
        ({"cached_content": "x"}, "cachedContent: this cannot be carried"),
    ]
    for config, problem in refused:
        async with standing(answer("x")) as stand, client(stand) as made:
            with pytest.raises(errors.ClientError, match=problem):
                await asked(made, stream=False, **config)


async def test_what_is_not_served_is_said_in_googles_form() -> None:
    from google.genai import errors

    async with standing(answer("x")) as stand, client(stand) as made:
        with pytest.raises(errors.ClientError, match="this is not served here") as caught:
            await made.models.embed_content(model="policy", contents="hi")
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")


@pytest.mark.parametrize("mode", ["AUTO", "VALIDATED"])
async def test_the_model_may_choose_whether_it_calls(mode: str) -> None:
    """pydantic-ai asks for calls that fit their schemas."""
    calling = {"function_calling_config": {"mode": mode}}
    async with standing(answer("x")) as stand, client(stand) as made:
        await asked(made, stream=False, tool_config=calling)
    ((call, _),) = stand.engine.calls.items
    assert json.loads(bytes(call.params))["tool_choice"] == "auto"


async def test_a_rollout_is_named_by_the_key_too() -> None:
    async with standing(answer("x"), anonymous=False) as stand:
        options = {"base_url": stand.url}
        key = f"gym-{stand.gateway.names.of('r.0.1')}"
        async with client(stand, api_key=key, http_options=options) as made:
            assert (await asked(made, stream=False))[0].text == "x"
    ((_, context),) = stand.engine.calls.items
    assert context.rollout == "r.0.1"


@pytest.mark.parametrize("stream", [False, True])
async def test_googles_client_gets_functions_of_its_computer_tool(stream: bool) -> None:
    """And what it sends back is what the model wrote, though the grid is coarser than the screen."""
    screen = {"inline_data": {"mime_type": "image/png", "data": png(1280, 800)}}
    wrote = '{"action": "left_click",  "coordinate": [1279, 3]}'
    tool = {
        "computer_use": {"environment": "ENVIRONMENT_BROWSER", "excluded_predefined_functions": ["scroll"]}
    }
    engine = Engine(answer(function_call("computer", wrote, "call_1")), answer("Done."))
    async with standing(engine) as stand, client(stand) as made:
        user = {"role": "user", "parts": [screen, {"text": "Close it."}]}
        (part,) = parts(await asked(made, stream=stream, contents=[user], tools=[tool]))
        call = part.function_call
        assert (call.id, call.name, call.args) == ("call_1", "click", {"x": 999, "y": 4})
        result = {"id": "call_1", "name": "click", "response": {"url": "about:blank"}}
        history = [
            user,
            {"role": "model", "parts": [part.model_dump(exclude_none=True)]},
            {"role": "user", "parts": [{"function_response": result}, screen]},
        ]
        await asked(made, stream=stream, contents=history, tools=[tool])
        (first, _), (second, _) = stand.engine.calls.items
    offered = {one["name"]: one for one in json.loads(bytes(first.params))["tools"]}
    assert sorted(offered) == ["computer", "go_back", "go_forward", "navigate"]
    actions = offered["computer"]["parameters"]["properties"]["action"]["enum"]
    assert "left_click" in actions
    assert "scroll" not in actions
    _, called, output, _ = [json.loads(bytes(raw)) for raw in second.input]
    assert (called["name"], called["arguments"], called["call_id"]) == ("computer", wrote, "call_1")
    assert (output["call_id"], output["output"]) == ("call_1", '{"url":"about:blank"}')


async def test_tokens_are_counted_by_the_engine() -> None:
    async with standing(Counter()) as stand, client(stand) as made:
        contents = [{"role": "user", "parts": [{"text": "a"}]}, {"role": "model", "parts": [{"text": "b"}]}]
        counted = await made.models.count_tokens(model="policy", contents=contents)
        assert counted.total_tokens == 42
        whole = {"generateContentRequest": {"model": "models/policy", "contents": contents, "tools": [TOOL]}}
        status, said, _ = await stand.post(f"{stand.at('r.0.0')}/v1beta/models/policy:countTokens", whole)
        assert (status, said) == (200, {"totalTokens": 42})
        assert [one["name"] for one in json.loads(bytes(stand.engine.asked[1].params))["tools"]] == [
            "weather"
        ]
        assert stand.captures.calls("r.0.0") is None, "it is no turn"


@pytest.mark.parametrize("more", [{}, {"count": None}])
async def test_what_cannot_be_counted_is_said_in_googles_form(more: dict[str, Any]) -> None:
    from google.genai import errors

    async with standing(answer("x"), **more) as stand, client(stand) as made:
        with pytest.raises(errors.APIError, match="an answer's usage says how many") as caught:
            await made.models.count_tokens(model="policy", contents="weather?")
        assert (caught.value.code, caught.value.status) == (501, "UNIMPLEMENTED")
        assert not stand.engine.calls.items
        status, said, _ = await stand.post(f"{stand.at('r.0.0')}/v1/models/policy:countTokens", b"{")
        unreadable = (501, "UNIMPLEMENTED") if more else (400, "INVALID_ARGUMENT")
        assert (status, said["error"]["status"]) == unreadable
