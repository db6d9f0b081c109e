"""The `azure` adapter against a stub engine that speaks Azure's two surfaces."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from gym_models.azure import Adapter
from gym_models.wire import entra
from gym_models.wire.entra import Login, Token
from gym_runtime.errors import ModelRefused, UsageError
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import TOOL, USER, context, decoded, model_call, output
from stubs import stub_engine
from stubs.stub_engine import StubEngine

pytestmark = pytest.mark.anyio
KEY = "0123456789abcdef-azure"
DATED = "2024-10-21"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "AD_TOKEN", "ENDPOINT"):
        monkeypatch.delenv(f"AZURE_OPENAI_{name}", raising=False)
    monkeypatch.delenv("OPENAI_API_VERSION", raising=False)


@pytest.fixture(scope="module")
def azure() -> Iterator[StubEngine]:
    with stub_engine.running("--require-key", KEY) as engine:
        yield engine


def resource(stub: StubEngine) -> str:
    return stub.url.removesuffix("/v1")


def settings(*urls: str, name: str = "stub", api: str = "auto", **options: Any) -> ModelSettings:
    return ModelSettings(provider="azure", name=name, urls=urls, api=api, options=options)


@pytest.mark.parametrize("api", ["auto", "responses", "chat"])
async def test_the_v1_surface(azure: StubEngine, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    async with Adapter(settings(resource(azure), api=api)) as adapter:
        response = decoded(await adapter.respond(model_call(max_output_tokens=9), context()))
    assert response.status == "completed"
    assert response.usage is not None
    seen = azure.last()
    assert seen.path == f"/openai/v1/{'chat/completions' if api == 'chat' else 'responses'}"
    assert seen.headers["api-key"] == KEY
    assert "authorization" not in seen.headers
    assert json.loads(seen.body)["model"] == "stub"
    if api == "chat":
        assert json.loads(seen.body)["max_completion_tokens"] == 9


async def test_the_surface_by_deployment(azure: StubEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", resource(azure) + "/")
    monkeypatch.setenv("OPENAI_API_VERSION", DATED)
    async with Adapter(settings()) as adapter:
        first = output(await adapter.respond(model_call(tools=[TOOL]), context()))
        assert [item["type"] for item in first] == ["function_call"]
        result = {"type": "function_call_output", "call_id": first[0]["call_id"], "output": "cold"}
        second = output(await adapter.respond(model_call(USER, *first, result, tools=[TOOL]), context()))
        assert [item["type"] for item in second] == ["message"]
    assert azure.last().path == f"/openai/deployments/stub/chat/completions?api-version={DATED}"


async def test_a_preview_of_the_v1_surface(azure: StubEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    async with Adapter(settings(resource(azure) + "/openai/v1/", api_version="preview")) as adapter:
        assert output(await adapter.respond(model_call(), context()))
    assert azure.last().path == "/openai/v1/responses?api-version=preview"


async def test_faults_keep_their_meaning(azure: StubEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    async with Adapter(settings(resource(azure), api_version=DATED)) as adapter:
        with pytest.raises(ModelRefused, match="filtered"):
            await adapter.respond(model_call(), context(x_stub_fault="filter"))
        long = decoded(await adapter.respond(model_call(), context(x_stub_fault="context")))
        assert long.status == "incomplete"
    async with Adapter(settings(resource(azure), name="nobody", api_version=DATED)) as adapter:
        with pytest.raises(ModelRefused, match="deployment for this resource does not exist"):
            await adapter.respond(model_call(), context())


async def test_a_wrong_key_is_one_clear_line(azure: StubEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "wrong-key-0123")
    with pytest.raises(UsageError, match=r"Access denied.*the key in AZURE_OPENAI_API_KEY") as caught:
        await Adapter(settings(resource(azure))).__aenter__()
    assert "wrong-key" not in caught.value.message


async def test_a_token_that_somebody_else_keeps_fresh(
    azure: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", KEY)
    async with Adapter(settings(resource(azure))) as adapter:
        assert output(await adapter.respond(model_call(), context()))
    assert azure.last().headers["authorization"] == f"Bearer {KEY}"
    assert "api-key" not in azure.last().headers


# -- tokens that expire -------------------------------------------------------------------------------


async def test_a_command_gives_tokens(azure: StubEngine, tmp_path: Path) -> None:
    """The command counts its runs. The first token is nearly over, so there is a second, and no third."""
    runs = tmp_path / "runs"
    program = (
        "import json, sys, time\n"
        f"runs = open({str(runs)!r}, 'a+'); runs.write('x'); runs.flush(); runs.seek(0)\n"
        "left = 3600 if len(runs.read()) > 1 else 100\n"
        f"print(json.dumps({{'accessToken': {KEY!r}, 'expires_on': time.time() + left, 'tenant': 't'}}))\n"
    )
    command = [sys.executable, "-c", program]
    async with Adapter(settings(resource(azure), api="chat", token_command=command)) as adapter:
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(adapter.respond, model_call(), context())
        assert runs.read_text() == "xx"
    assert azure.last().headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.exit('please log in')", "ended with 1: please log in"),
        ("print('not a token')", "must print JSON"),
    ],
)
async def test_a_command_that_fails(azure: StubEngine, program: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        await Adapter(settings(resource(azure), token_command=[sys.executable, "-c", program])).__aenter__()
    with pytest.raises(UsageError, match="cannot be run"):
        await Adapter(settings(resource(azure), token_command=["/no/such/program"])).__aenter__()


async def test_a_token_is_fetched_once_for_all_and_early(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[float] = []

    def fetch() -> Token:
        fetched.append(time.time())
        return Token(token=f"t{len(fetched)}", expires_on=time.time() + entra.EARLY_S + 60)

    login = Login(fetch)
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(login)
    assert await login() == {"authorization": "Bearer t1"}
    monkeypatch.setattr(entra.clock, "now", lambda: time.time() + 61)
    assert await login() == {"authorization": "Bearer t2"}
    assert len(fetched) == 2
    assert "t1" not in repr(Token(token="t1", expires_on=1.0))


class _Identity(BaseHTTPRequestHandler):
    """The endpoint that Azure's App Service has for managed identities."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(f"{self.path} {self.headers['X-IDENTITY-HEADER']}")
        body = json.dumps(
            {
                "access_token": KEY,
                "expires_on": str(int(time.time()) + 3600),
                "resource": "r",
                "token_type": "Bearer",
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None: ...


@contextmanager
def identity_endpoint() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (_Identity,), {"asked": asked})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
async def test_a_managed_identity(azure: StubEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("azure.identity")
    with identity_endpoint() as (url, asked):
        monkeypatch.setenv("IDENTITY_ENDPOINT", url)
        monkeypatch.setenv("IDENTITY_HEADER", "secret")
        async with Adapter(settings(resource(azure))) as adapter:
            for _ in range(3):
                assert output(await adapter.respond(model_call(), context()))
    assert azure.last().headers["authorization"] == f"Bearer {KEY}"
    (one,) = asked
    assert "resource=https" in one
    assert "cognitiveservices.azure.com" in one
    assert one.endswith(" secret")


# -- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (settings(), "the Azure resource is not set"),
        (
            settings("https://x.openai.azure.com", api="responses", api_version=DATED),
            "has Chat Completions only",
        ),
        (settings("https://x.openai.azure.com", deployment="d"), "deployment"),
        (settings("https://x.openai.azure.com", api="completions"), "completions"),
    ],
)
def test_settings_that_are_wrong(made: ModelSettings, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Adapter(made)


async def test_urls_that_are_no_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    for url in ("https://x.openai.azure.com/some/path", "x.openai.azure.com"):
        with pytest.raises(UsageError, match="is not a"):
            await Adapter(settings(url)).__aenter__()


async def test_nobody_to_be(azure: StubEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"set AZURE_OPENAI_API_KEY or .*gym-runtime\[azure\]"):
        await Adapter(settings(resource(azure))).__aenter__()
