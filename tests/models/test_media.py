"""An engine is not made to fetch what only its network sees."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gym_models.openai import Adapter
from gym_models.vllm import Adapter as Vllm
from gym_models.wire import media
from gym_runtime.errors import TaskError
from gym_runtime.messages.calls import ModelCall
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import context, model_call, output
from msgspec import Raw
from stubs.stub_engine import StubEngine
from tables import table

pytestmark = pytest.mark.anyio

INSIDE = [
    "http://127.0.0.1/x.png",
    "http://localhost:8080/x.png",
    "https://vllm/x.png",
    "http://169.254.169.254/latest/meta-data/",
    "http://metadata.google.internal/",
    "http://10.1.2.3/x",
    "http://[::1]/x",
    "http://[::ffff:10.0.0.1]/x",
    "http://[64:ff9b::7f00:1]/x",
    "http://[fe80::1%25eth0]/x",
    "http://0.0.0.0/x",
    "http://2130706433/x",
    "http://0x7f.1/x",
    "http://127.1/x",
    "http://localhost./x",
    "http://me@example.com/x",
    "http://example.com\\@127.0.0.1/x",
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "ftp://example.com/x",
    "gopher://example.com/x",
    "//127.0.0.1/x",
    "/etc/passwd",
    "",
    "http://[::1",
]
OUTSIDE = [
    "data:image/png;base64,AAAA",
    "DATA:text/plain,x",
    "https://93.184.216.34/x.png",
    "http://[2606:4700::1]/x",
]


def user(**part: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": "?"}, part]}


def output_of_tool(url: str) -> dict[str, Any]:
    part = {"type": "input_image", "image_url": url}
    return {"type": "function_call_output", "call_id": "c", "output": [part]}


FORMS: list[Any] = [
    lambda url: user(type="input_image", image_url=url),
    lambda url: user(type="image_url", image_url={"url": url}),
    lambda url: user(type="input_file", file_url=url),
    lambda url: user(type="video_url", video_url={"url": url}),
    output_of_tool,
]


@table("form", FORMS)
@table("url", INSIDE)
async def test_addresses_inside_are_refused(url: str, form: Any) -> None:
    with pytest.raises(TaskError, match="the engine is not asked to fetch"):
        await media.check(model_call(form(url)))


@table("form", FORMS)
@table("url", OUTSIDE)
async def test_data_and_the_world_outside_may_pass(url: str, form: Any) -> None:
    await media.check(model_call(form(url)))


async def test_a_name_may_be_written_in_escapes() -> None:
    plain = json.dumps(user(type="input_image", image_url="http://127.0.0.1/x"))
    hidden = Raw(plain.replace("image_url", "image\\u005furl").encode())
    with pytest.raises(TaskError, match=r"127\.0\.0\.1"):
        await media.check(ModelCall(params=Raw(b"{}"), input=[hidden]))


async def test_servers_of_hosted_tools_are_addresses_too() -> None:
    schema = {"type": "object", "properties": {"image_url": {"default": "http://127.0.0.1"}}}
    function = {"type": "function", "name": "f", "parameters": schema}
    await media.check(model_call(tools=[function]))
    with pytest.raises(TaskError, match="not asked to fetch 'http://127"):
        await media.check(model_call(tools=[function, {"type": "mcp", "server_url": "http://127.0.0.1:1/"}]))


async def test_an_item_that_is_nested_too_deeply() -> None:
    deep = Raw(b'{"a_url":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    with pytest.raises(TaskError, match="cannot be read"):
        await media.check(ModelCall(params=Raw(b"{}"), input=[deep]))


async def test_what_a_text_says_is_no_address() -> None:
    said = {"role": "user", "content": 'the field "image_url" holds http://127.0.0.1/x'}
    call = {
        "type": "function_call",
        "arguments": '{"image_url": "http://127.0.0.1/x"}',
        "call_id": "c",
        "name": "f",
    }
    await media.check(model_call(said, call))


async def test_settings_name_hosts_that_may_be_asked() -> None:
    shown = model_call(user(type="input_image", image_url="http://pictures.internal:80/x"))
    await media.check(shown, ("pictures.internal",))
    with pytest.raises(TaskError, match="media_hosts"):
        await media.check(shown, ("other.internal",))


@table("api", ["responses", "chat"])
@table("adapter", [Adapter, Vllm])
@table("tokens", [False, True])
async def test_every_way_to_an_engine_is_guarded(
    stub: StubEngine, adapter: Any, api: str, tokens: bool
) -> None:
    """The stub fetches nothing; it only counts what it is asked."""
    settings = ModelSettings(provider="x", name="stub", urls=(stub.url,), api=api, media_hosts=("pictures",))
    async with adapter(settings) as engine:
        before = stub.stats().requests
        with pytest.raises(TaskError, match="not asked to fetch"):
            call = model_call(user(type="input_image", image_url="http://127.0.0.1/x"), return_tokens=tokens)
            await engine.respond(call, context())
        assert stub.stats().requests == before
        fine = model_call(user(type="input_image", image_url="http://pictures/x"))
        assert output(await engine.respond(fine, context()))
