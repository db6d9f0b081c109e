"""The OpenAI adapter: faults, deadlines, cancellation, connections, sizes."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from gym_faces.dialects.chat_request import ChatVariant
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Engine
from gym_runtime.errors import (
    DeadlineExceeded,
    GymError,
    ModelLimited,
    ModelRefused,
    ModelUnavailable,
)
from models.model_calls import context, decoded, model_call, output
from models.openai.openai_adapter import KEY, entered
from msgspec.structs import replace
from stubs import stub_dialects, stub_engine
from stubs.stub_engine import StubEngine

pytestmark = pytest.mark.anyio


async def until(stub: StubEngine, **wanted: int) -> None:
    """Wait for counts of the stub."""
    with anyio.fail_after(15):
        # The counts are in another process.
        while any(getattr(stub.stats(), name) != count for name, count in wanted.items()):
            await anyio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        ("401", ModelRefused, "401"),
        ("404", ModelRefused, "does not exist"),
        ("429", ModelLimited, "Rate limit"),
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


async def test_a_first_prompt_that_does_not_fit_is_an_error(stub: StubEngine, api: str) -> None:
    async with entered(stub.url, api=api) as adapter:
        call = replace(model_call(), first=True)
        with pytest.raises(ModelRefused, match=r"first prompt does not fit .*: .*maximum"):
            await adapter.respond(call, context(x_stub_fault="context"))


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
            with anyio.fail_after(15):
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
    with stub_engine.running("--latency-s", "600") as stub:
        async with entered(stub.url) as adapter, anyio.create_task_group() as tasks:
            for number in range(1024):
                tasks.start_soon(adapter.respond, model_call(), context(rollout=f"r.{number}.0", limit_s=60))
            await until(stub, in_flight=1024)
            tasks.cancel_scope.cancel()


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


async def test_a_proxy_has_the_api_that_the_engine_behind_it_lacks() -> None:
    asked: list[str] = []

    async def responses(request: web.Request) -> web.Response:
        asked.append(request.path)
        # LiteLLM's check of a request comes before the engine's 404.
        status = 404 if "input" in await request.json() else 400
        return web.json_response({"error": {"message": "the model group failed"}}, status=status)

    async def chat(request: web.Request) -> web.Response:
        asked.append(request.path)
        if asked.count(request.path) == 1:  # it rests the engine after that 404
            return web.json_response({"error": {"message": "in cooldown"}}, status=429)
        body = await request.read()
        said = stub_dialects.chat_answer(stub_dialects.decode_call(body), len(body))
        return web.Response(body=said, content_type="application/json")

    app = web.Application()
    app.router.add_post("/v1/responses", responses)
    app.router.add_post("/v1/chat/completions", chat)
    async with TestServer(app) as server, entered(str(server.make_url("/v1"))) as adapter:
        with pytest.raises(ModelLimited):
            await adapter.respond(model_call(), context())
        assert output(await adapter.respond(model_call(), context()))
    check, first, *more = asked
    assert check == first == "/v1/responses"
    assert more == ["/v1/chat/completions"] * 2, "the API is known from then on"


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
