"""The `openai` adapter against the stub engine in a process of its own: faults, cancellation, start-up."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from gym_models.openai import Adapter
from gym_models.wire.chat_request import ChatVariant
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Engine
from gym_runtime import logs
from gym_runtime.errors import (
    DeadlineExceeded,
    GymError,
    ModelRefused,
    ModelUnavailable,
    TaskError,
    UsageError,
)
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import context, decoded, model_call, output
from stubs import stub_engine
from stubs.stub_engine import StubEngine

pytestmark = pytest.mark.anyio
KEY = "sk-test-0123456789"


def settings(*urls: str, name: str = "stub", **more: Any) -> ModelSettings:
    return ModelSettings(provider="openai", name=name, urls=urls, **more)


@asynccontextmanager
async def entered(*urls: str, **more: Any) -> AsyncIterator[Adapter]:
    async with Adapter(settings(*urls, **more)) as adapter:
        yield adapter


@pytest.fixture(params=["responses", "chat", "auto"])
def api(request: pytest.FixtureRequest) -> str:
    return request.param


async def until(stub: StubEngine, **wanted: int) -> None:
    """Wait for counts of the stub."""
    with anyio.fail_after(5):
        # The counts are in another process.
        while any(getattr(stub.stats(), name) != count for name, count in wanted.items()):
            await anyio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        ("401", ModelRefused, "401"),
        ("404", ModelRefused, "does not exist"),
        ("429", ModelUnavailable, "Rate limit"),
        ("quota", ModelRefused, "quota"),
        ("500", ModelUnavailable, "500"),
        ("503", ModelUnavailable, "overloaded"),
        ("filter", ModelRefused, "filtered"),
        ("html", ModelUnavailable, "502 Bad Gateway"),
        ("malformed", ModelUnavailable, "no response"),
        ("foreign", ModelUnavailable, "no response"),
        ("cut", ModelUnavailable, "broke in mid-answer"),
        ("drop", ModelUnavailable, "broke in mid-answer"),
    ],
)
async def test_faults_by_class(
    stub: StubEngine, api: str, fault: str, error: type[GymError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with entered(stub.url, api=api) as adapter:
        with pytest.raises(error, match=said) as caught:
            await adapter.respond(model_call(), context(x_stub_fault=fault))
        assert type(caught.value) is error
        assert KEY not in caught.value.message
        assert caught.value.stage == "model"
        assert output(await adapter.respond(model_call(), context()))


async def test_retry_after(stub: StubEngine, api: str) -> None:
    async with entered(stub.url, api=api) as adapter:
        with pytest.raises(ModelUnavailable) as caught:
            await adapter.respond(model_call(), context(x_stub_fault="429"))
        assert caught.value.retry_after_s == 1.0


async def test_context_overflow_is_an_answer_that_stops_short(stub: StubEngine, api: str) -> None:
    async with entered(stub.url, api=api) as adapter:
        response = decoded(await adapter.respond(model_call(), context(x_stub_fault="context")))
        assert response.output == []
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "max_output_tokens"


async def test_the_deadline(stub: StubEngine, api: str) -> None:
    async with entered(stub.url, api=api) as adapter:
        with pytest.raises(DeadlineExceeded):
            await adapter.respond(model_call(), context(limit_s=0.2, x_stub_fault="hang"))
        with pytest.raises(DeadlineExceeded, match="before the model was called"):
            await adapter.respond(model_call(), context(limit_s=-1))


async def test_cancelling_reaches_the_engine(api: str) -> None:
    with stub_engine.running() as stub:
        async with entered(stub.url, api=api) as adapter:
            stub.stats(reset=True)
            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(adapter.respond, model_call(), context(x_stub_fault="hang"))
                await until(stub, in_flight=8)
                tasks.cancel_scope.cancel()
            await until(stub, in_flight=0, aborted=8)
            assert output(await adapter.respond(model_call(), context()))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system's own interval holds")
async def test_a_host_that_vanishes_while_it_is_waited_for_is_noticed() -> None:
    with stub_engine.running("--latency-s", "60") as stub:
        async with entered(stub.url) as adapter, anyio.create_task_group() as tasks:
            tasks.start_soon(adapter.respond, model_call(), context())
            await until(stub, in_flight=1)
            with anyio.fail_after(5):
                # Until the request itself is acknowledged, it is that which the kernel has a timer for.
                while keepalive_timers(urlsplit(stub.url).port or 0) != 1:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


def keepalive_timers(port: int) -> int:
    """How many of our connections to a port the kernel is going to probe."""
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, _, _, timer, *_ = line.split()
        found += remote.endswith(f":{port:04X}") and timer.startswith("02:")
    return found


async def test_connections_are_reused() -> None:
    with stub_engine.running() as stub:
        async with entered(stub.url) as adapter:
            for _ in range(20):
                await adapter.respond(model_call(), context())
            assert stub.stats().connections == 2  # ours, and the one that asks


@pytest.mark.slow
async def test_all_of_many_are_at_the_engine_at_once() -> None:
    with stub_engine.running("--latency-s", "4") as stub:
        async with entered(stub.url) as adapter, anyio.create_task_group() as tasks:
            for number in range(1024):
                tasks.start_soon(adapter.respond, model_call(), context(rollout=f"r.{number}.0"))
        assert stub.stats().max_in_flight == 1024


async def test_max_concurrent_requests() -> None:
    with stub_engine.running("--latency-s", "0.02") as stub:
        async with entered(stub.url, max_concurrent_requests=3) as adapter:
            stub.stats(reset=True)
            async with anyio.create_task_group() as tasks:
                for _ in range(12):
                    tasks.start_soon(adapter.respond, model_call(), context())
        assert stub.stats().max_in_flight == 3
        assert stub.stats().requests == 12


@pytest.mark.parametrize("has", ["responses", "chat", "both"])
async def test_auto_finds_the_api(has: str) -> None:
    with stub_engine.running("--api", has) as stub:
        async with entered(stub.url) as adapter:
            stub.stats(reset=True)
            async with anyio.create_task_group() as tasks:
                for _ in range(32):
                    tasks.start_soon(adapter.respond, model_call(), context())
            assert stub.stats().requests == 32  # none of them in vain


async def test_auto_without_a_look_before_pays_once() -> None:
    with stub_engine.running("--api", "chat") as stub:
        endpoint = Endpoint(url=stub.url, headers={}, private=True)
        async with Engine(endpoint, model="stub", api="auto", dialect=ChatVariant()) as engine:
            with pytest.raises(ModelUnavailable):
                await engine.respond(model_call(), context(x_stub_fault="503"))
            assert engine.api == "auto"
            stub.stats(reset=True)
            for _ in range(3):
                assert output(await engine.respond(model_call(), context()))
            assert engine.api == "chat"
            assert stub.stats().requests == 4


async def test_a_rollout_keeps_to_one_engine() -> None:
    with stub_engine.running() as one, stub_engine.running() as other:
        async with entered(one.url, other.url) as adapter:
            one.stats(reset=True)
            other.stats(reset=True)
            for _ in range(5):
                await adapter.respond(model_call(), context(rollout="r.1.0"))
            assert {one.stats().requests, other.stats().requests} == {0, 5}
            for number in range(50):
                await adapter.respond(model_call(), context(rollout=f"r.{number}.0"))
            assert min(one.stats().requests, other.stats().requests) > 5


async def test_large_bodies_go_through(stub: StubEngine, api: str) -> None:
    async with entered(stub.url, api=api) as adapter:
        large = {"role": "user", "content": "x" * (3 << 20)}
        usage = decoded(await adapter.respond(model_call(large), context())).usage
        assert usage is not None
        assert usage.input_tokens > 3 << 18


async def test_a_key_is_sent_and_a_wrong_one_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with stub_engine.running("--require-key", KEY) as stub:
        monkeypatch.setenv("MY_KEY", KEY)
        async with entered(stub.url, api_key_variable="MY_KEY") as adapter:
            assert output(await adapter.respond(model_call(), context()))
        monkeypatch.setenv("MY_KEY", "sk-wrong-0123456789")
        with pytest.raises(UsageError, match="the key in MY_KEY") as caught:
            await Adapter(settings(stub.url, api_key_variable="MY_KEY")).__aenter__()
        assert "sk-" not in caught.value.message
        assert "\n" not in caught.value.message
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        with pytest.raises(UsageError, match="no key, OPENAI_API_KEY is empty"):
            await Adapter(settings(stub.url)).__aenter__()


@pytest.mark.parametrize("source", ["{url}", "file:{path}"])
async def test_a_key_or_a_header_is_one_line(
    stub: StubEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    (tmp_path / "engines").write_text(stub.url)
    url = source.format(url=stub.url, path=tmp_path / "engines")
    with pytest.raises(UsageError, match=r"a line break within the header 'x-team': "):
        await Adapter(settings(url, headers={"X-Team": "a\r\nb"})).__aenter__()
    monkeypatch.setenv("OPENAI_API_KEY", "se\ncret")
    with pytest.raises(UsageError, match=r"'authorization' \(the key in OPENAI_API_KEY\)") as caught:
        await Adapter(settings(url)).__aenter__()
    assert "cret" not in caught.value.message


async def test_the_model_must_be_there(stub: StubEngine) -> None:
    with pytest.raises(UsageError, match=r"has no model 'stob'; did you mean 'stub'\?"):
        await Adapter(settings(stub.url, name="stob")).__aenter__()
    with pytest.raises(UsageError, match="it serves stub, vendor/other"):
        await Adapter(settings(stub.url, name="xyz")).__aenter__()
    with pytest.raises(UsageError, match="serves 2 models; name one"):
        await Adapter(settings(stub.url, name="")).__aenter__()
    async with entered(stub.url, name="other"), entered(stub.url, name="xyz", options={"check_model": False}):
        pass


async def test_the_only_model_needs_no_name() -> None:
    with stub_engine.running("--models", "alone") as stub:
        async with entered(stub.url, name="") as adapter:
            assert decoded(await adapter.respond(model_call(), context())).model == "alone"


async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(UsageError, match=f"nothing listens at http://127.0.0.1:{port}/v1"):
            await Adapter(settings(f"http://127.0.0.1:{port}")).__aenter__()


@pytest.mark.parametrize(
    ("status", "location", "said"),
    [
        (200, "", "with a web page where an engine lists its models"),
        (301, "https://elsewhere.example/v1/models", "moved to https://elsewhere.example/v1; name that"),
    ],
)
async def test_somebody_else_listens(status: int, location: str, said: str) -> None:
    async def page(_: web.Request) -> web.Response:
        headers = {"location": location} if location else {}
        return web.Response(status=status, text="<!DOCTYPE html><p>hello", headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", page)
    async with TestServer(app) as server:
        with pytest.raises(UsageError, match=said):
            await Adapter(settings(str(server.make_url("/v1")))).__aenter__()


@asynccontextmanager
async def saying(body: Any) -> AsyncIterator[Adapter]:
    """The adapter before an engine that answers every chat completion with this body and status 200."""

    async def say(_: web.Request) -> web.Response:
        return web.json_response(body)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", say)
    async with TestServer(app) as server, entered(str(server.make_url("/v1")), api="chat") as adapter:
        yield adapter


@pytest.mark.parametrize("more", [{}, {"choices": []}])
async def test_an_overflow_that_a_router_passes_on_is_one(more: dict[str, Any]) -> None:
    refusal = {"code": 400, "message": "This model's maximum context length is 8 tokens"}
    async with saying({"error": refusal, **more}) as adapter:
        response = decoded(await adapter.respond(model_call(), context()))
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


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
async def test_somebody_listens_and_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        started = time.perf_counter()
        with pytest.raises(UsageError, match="did not answer within 5 s"):
            await Adapter(settings(f"http://127.0.0.1:{silent.getsockname()[1]}")).__aenter__()
        assert time.perf_counter() - started < 7


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
        ({"api": "completions"}, "api is one of"),
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
