"""The OpenAI adapter at its start: keys, models, addresses."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from gym_models.openai import Adapter
from gym_runtime.errors import (
    UsageError,
)
from models.model_calls import context, decoded, model_call, output
from models.openai.openai_adapter import KEY, entered, settings
from stubs import stub_engine
from stubs.stub_engine import StubEngine

pytestmark = pytest.mark.anyio


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
