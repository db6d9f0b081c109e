"""The OpenAI adapter: what routers and engines answer."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from gym_models.openai import Adapter
from gym_models.wire import preflight
from gym_runtime import logs
from gym_runtime.errors import (
    ModelLimited,
    ModelRefused,
    ModelUnavailable,
    TaskError,
    UsageError,
)
from models.model_calls import context, decoded, model_call, output
from models.openai.openai_adapter import entered, settings
from stubs import stub_engine
from stubs.stub_engine import StubEngine
from time_limits import busy

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def saying(body: Any, api: str = "chat") -> AsyncIterator[Adapter]:
    """The adapter before an engine that answers every call with this body and status 200."""

    async def say(_: web.Request) -> web.Response:
        if isinstance(body, bytes):
            return web.Response(body=body, content_type="application/json")
        return web.json_response(body)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", say)
    app.router.add_post("/v1/responses", say)
    async with TestServer(app) as server, entered(str(server.make_url("/v1")), api=api) as adapter:
        yield adapter


@pytest.mark.parametrize("more", [{}, {"choices": []}])
@pytest.mark.parametrize("code", [400, "400", "context_length_exceeded"])
async def test_an_overflow_that_a_router_passes_on_is_one(more: dict[str, Any], code: int | str) -> None:
    refusal = {"code": code, "message": "This model's maximum context length is 8 tokens"}
    async with saying({"error": refusal, **more}) as adapter:
        response = decoded(await adapter.respond(model_call(), context()))
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "401", "message": "no"}, ModelRefused),
        ({"code": "429", "message": "later"}, ModelLimited),
        ({"code": "503", "message": "later"}, ModelUnavailable),
        ({"code": "overloaded", "message": "later"}, ModelUnavailable),
    ],
)
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_errors_code_may_be_a_text(error: dict[str, str], kind: type[Exception], api: str) -> None:
    async with saying({"error": error}, api) as adapter:
        with pytest.raises(kind) as caught:
            await adapter.respond(model_call(), context())
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("beside", "within", "said"),
    [
        ({"error": {"code": 502, "message": "upstream is gone"}}, {}, "answered 502: upstream is gone"),
        ({}, {"error": {"code": 502, "message": "upstream is gone"}}, "broke off.*upstream is gone"),
    ],
)
async def test_half_an_answer_beside_an_error_is_none(
    beside: dict[str, Any], within: dict[str, Any], said: str
) -> None:
    choice = {"message": {"content": "The answer is"}, "finish_reason": "stop", **within}
    async with saying({"choices": [choice], **beside}) as adapter:
        with pytest.raises(ModelUnavailable, match=said):
            await adapter.respond(model_call(), context())


@pytest.mark.parametrize("number", [b"1e999", b"-2.5E+400", b"[0.1e0310,1" + b"0" * 30 + b"]"])
@pytest.mark.parametrize(
    ("api", "body"),
    [
        (
            "responses",
            b'{"output":[{"type":"message","role":"assistant","score":%b,"content":[{"type":"output_text",'
            b'"text":"1e999","annotations":[]}]}],"metadata":{"x":%b},"created_at":1e3}',
        ),
        (
            "chat",
            b'{"choices":[{"finish_reason":"tool_calls","message":{"content":"1e999","tool_calls":[{"id":"c",'
            b'"function":{"name":"f","arguments":"{}"},"extra_content":{"x":[%b,%b]}}]}}]}',
        ),
    ],
)
async def test_a_number_that_no_double_holds_does_not_reach_a_row(
    api: str, body: bytes, number: bytes
) -> None:
    async with saying(body % (number, number), api) as adapter:
        said = bytes((await adapter.respond(model_call(), context())).response)
    assert msgspec.json.decode(said)["output"][0]["content"][0]["text"] == "1e999"
    json.loads(said, parse_float=lambda text: pytest.fail(text) if math.isinf(float(text)) else text)


@pytest.mark.parametrize("status", ["cancelled", "in_progress"])
async def test_a_response_that_was_cut_short_is_none(status: str) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "The"}]}
    async with saying({"output": [message], "status": status}, api="responses") as adapter:
        with pytest.raises(ModelUnavailable, match=f"status '{status}'"):
            await adapter.respond(model_call(), context())


async def test_another_refusal_that_a_router_passes_on() -> None:
    async with saying({"error": {"code": 403, "message": "flagged"}}) as adapter:
        with pytest.raises(ModelRefused, match="answered 403: flagged"):
            await adapter.respond(model_call(), context())


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        ({"top_logprobs": 1}, True),
        ({"include": ["message.output_text.logprobs"]}, True),
        ({}, False),
    ],
)
async def test_log_probabilities_are_in_the_answer_where_they_were_asked_for(
    params: dict[str, Any], shown: bool
) -> None:
    candidate = {"token": "é", "logprob": -0.5, "bytes": None}
    content = [{**candidate, "top_logprobs": [{**candidate, "bytes": [9], "rank": 1}]}]
    choice = {"message": {"content": "é"}, "finish_reason": "stop", "logprobs": {"content": content}}
    async with saying({"choices": [choice]}) as adapter:
        (said,) = output(await adapter.respond(model_call(**params), context()))
    top = {"token": "é", "logprob": -0.5, "bytes": [9]}
    expected = [{**candidate, "bytes": [0xC3, 0xA9], "top_logprobs": [top]}]
    assert said["content"][0]["logprobs"] == (expected if shown else None)


async def test_an_engine_without_log_probabilities_answers_all_the_same() -> None:
    choice = {"message": {"content": "x"}, "finish_reason": "stop", "logprobs": None}
    async with saying({"choices": [choice]}) as adapter:
        (said,) = output(await adapter.respond(model_call(top_logprobs=1), context()))
    assert said["content"][0]["logprobs"] is None


async def test_hosted_tools_that_are_left_out_are_in_the_log_once(capsys: pytest.CaptureFixture[str]) -> None:
    choice = {"message": {"content": "x"}, "finish_reason": "stop"}
    hosted = [{"type": "web_search"}, {"type": "image_generation"}]
    logs.start()
    async with saying({"choices": [choice]}) as adapter:
        for number in (1, 2):
            offered = {"tools": hosted[:number], "metadata": {"hosted_tools": "optional"}}
            await adapter.respond(model_call(**offered), context())
        with pytest.raises(TaskError, match="no tools of type 'web_search'"):
            await adapter.respond(model_call(tools=hosted), context())
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["tool"]) for line in said] == [
        ("warning", "web_search"),
        ("warning", "image_generation"),
    ]
    assert said[0]["url"].startswith("http://127.0.0.1:")


async def test_an_engine_of_its_own_api_gets_the_tools_that_a_harness_offers(stub: StubEngine) -> None:
    tools = [{"type": "web_search"}]
    async with entered(stub.url, api="responses") as adapter:
        await adapter.respond(
            model_call(tools=tools, metadata={"hosted_tools": "optional", "a": "b"}), context()
        )
    asked = json.loads(stub.last().body)
    assert (asked["tools"], asked["metadata"]) == (tools, {"a": "b"})


@pytest.mark.slow
async def test_somebody_listens_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert preflight.LIMIT_S == 5.0
    monkeypatch.setattr(preflight, "LIMIT_S", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        started = time.perf_counter()
        with pytest.raises(UsageError, match="did not answer within 1 s"):
            await Adapter(settings(f"http://127.0.0.1:{silent.getsockname()[1]}")).__aenter__()
        assert time.perf_counter() - started < 1 + 2 * busy()


async def test_the_engine_goes_away() -> None:
    with stub_engine.running() as stub:
        adapter = Adapter(settings(stub.url))
        await adapter.__aenter__()
    try:
        with pytest.raises(ModelUnavailable, match=r"nothing listens|broke"):
            await adapter.respond(model_call(), context())
    finally:
        await adapter.__aexit__(None, None, None)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"api": "complete"}, "api is one of"),
        ({"options": {"resoning": "drop"}}, "resoning"),
        ({"options": {"reasoning": "loud"}}, "reasoning"),
    ],
)
async def test_settings_that_are_wrong(more: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Adapter(settings("http://127.0.0.1:1", **more))


async def test_chat_answers_say_what_native_ones_do(stub: StubEngine) -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
    params: dict[str, Any] = {
        "instructions": "be brief",
        "max_output_tokens": 64,
        "metadata": {"run": "7"},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "tool_choice": "required",
        "tools": [tool],
        "top_p": 0.9,
    }
    found: list[dict[str, Any]] = []
    for api in ("responses", "chat"):
        async with entered(stub.url, api=api) as adapter:
            answer = await adapter.respond(model_call(**params), context())
            found.append(json.loads(bytes(answer.response)))
    native, chat = found
    assert {name: chat[name] for name in params} == params
    assert {name: native[name] for name in params} == params


async def test_a_router_before_the_engines_learns_whose_call_it_is(stub: StubEngine, api: str) -> None:
    async with entered(stub.url, api=api) as adapter:
        await adapter.respond(model_call(), context(rollout="run.4.2", traceparent="00-1-2-01"))
    seen = stub.last().headers
    assert (seen["x-session-id"], seen["x-smg-routing-key"]) == ("run.4.2", "run.4.2")
    assert seen["traceparent"] == "00-1-2-01"


async def test_extra_body_and_headers(stub: StubEngine) -> None:
    more = {"extra_body": {"tool_choice": "none"}, "headers": {"X-Stub-Fault": ""}}
    async with entered(stub.url, **more) as adapter:
        tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
        (item,) = output(await adapter.respond(model_call(tools=[tool]), context()))
        assert item["type"] == "message"
