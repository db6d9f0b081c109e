"""Hosts by name: the table, and calls that go where it says."""

from __future__ import annotations

import json
from http.server import ThreadingHTTPServer

import pytest
from gym_models import hosted
from gym_models.hosted import Adapter, hosts
from gym_runtime.cli.models import parse_model
from gym_runtime.cli.options import ModelOptions
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.messages.calls import ModelCall
from gym_runtime.workers.adapter import ModelSettings
from gym_view.commands.ls import describe_module
from models.json_server import JsonHandler, serving
from models.model_calls import USER, context, decoded, model_call, output
from models.proxy import proxied
from msgspec import Raw
from stubs import stub_engine

KEY = "sk-host-0123456789"


@pytest.mark.parametrize("name", list(hosts()))
def test_every_host_is_a_model_provider(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosts()[name]
    assert name in catalogue.names("models")
    assert catalogue.load("models", name) is hosted
    assert parse_model(ModelOptions(model=f"{name}/vendor/model")).name == "vendor/model"
    monkeypatch.setenv(host.key, KEY)
    Adapter(ModelSettings(provider=name, name="m"))
    entry = describe_module("models", name)
    assert (entry.key_variable, entry.key_set, entry.description) == (host.key, True, host.about)
    assert host.url.startswith(("https://", "http://127.0.0.1:"))  # a proxy on this machine needs no TLS
    assert not host.url.endswith("/")


def test_the_table_itself_is_no_provider() -> None:
    assert "hosted" not in catalogue.names("models")
    with pytest.raises(UsageError, match="there is no host 'nowhere'; there are anthropic"):
        Adapter(ModelSettings(provider="nowhere", name="m"))


@pytest.mark.anyio
async def test_a_call_to_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """By HTTP here, and through a proxy, which is how a stub engine can be that host."""
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-that-is-no-business-of-others")
    with stub_engine.running("--require-key", KEY, "--models", "vendor/model") as stub:
        async with proxied(stub.url) as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            made = ModelSettings(
                provider="openrouter", name="vendor/model", urls=("http://openrouter.ai/v1",)
            )
            thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
            said = {"role": "assistant", "content": "yes"}
            async with Adapter(made) as adapter:
                user = {"role": "user", "content": "sure?"}
                assert output(await adapter.respond(model_call(user, thought, said, user), context()))
        seen = stub.last()
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert "openai-organization" not in seen.headers
    assert json.loads(seen.body)["messages"][1]["reasoning"] == "hm"


@pytest.mark.anyio
async def test_thinking_goes_back_to_a_host_that_refuses_calls_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
    called = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "1"}
    with stub_engine.running("--models", "thinker") as stub:
        made = ModelSettings(provider="deepseek", name="thinker", urls=(stub.url,))
        async with Adapter(made) as adapter:
            await adapter.respond(model_call(USER, thought, called, result), context())
        assert json.loads(stub.last().body)["messages"][1]["reasoning_content"] == "hm"


class Gemini(JsonHandler):
    """Signs its calls, and refuses those that come back unsigned."""

    def do_GET(self) -> None:
        self.answer({"data": [{"id": "gemini-3"}]})

    def do_POST(self) -> None:
        before = [call for said in self.asked()["messages"] for call in said.get("tool_calls", ())]
        if not all(call.get("extra_content") == SIGNED for call in before):
            return self.answer({"error": {"message": "Function call is missing a thought_signature"}}, 400)
        call = {"id": "c", "function": {"name": "f", "arguments": "{}"}, "extra_content": SIGNED}
        message = {"content": "done"} if before else {"tool_calls": [call]}
        return self.answer({"choices": [{"message": message, "finish_reason": "stop"}]})


SIGNED = {"google": {"thought_signature": "EoYC"}}


@pytest.mark.anyio
async def test_a_call_goes_back_to_gemini_with_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    result = {"type": "function_call_output", "call_id": "c", "output": "1"}
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Gemini)) as url:
        async with Adapter(ModelSettings(provider="gemini", name="gemini-3", urls=(url,))) as adapter:
            called = decoded(await adapter.respond(model_call(), context())).output
            call = ModelCall(
                params=Raw(b"{}"), input=[*model_call(USER).input, *called, *model_call(result).input]
            )
            assert output(await adapter.respond(call, context()))[0]["content"][0]["text"] == "done"


@pytest.mark.anyio
async def test_a_host_without_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    with pytest.raises(UsageError, match=r"the environment variable GROQ_API_KEY.*is not set"):
        await Adapter(ModelSettings(provider="groq", name="m")).__aenter__()


@pytest.mark.anyio
async def test_a_host_that_lists_nothing_is_not_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with stub_engine.running("--models", "other,claude") as stub:
        made = ModelSettings(provider="anthropic", name="claude", urls=(stub.url,))
        async with Adapter(made) as adapter:
            assert output(await adapter.respond(model_call(max_output_tokens=5), context()))
        assert json.loads(stub.last().body)["max_completion_tokens"] == 5


@pytest.mark.parametrize(
    ("more", "said"),
    [({"options": {"reasoning": "loud"}}, "reasoning"), ({"api": "complete"}, "complete")],
)
def test_settings_that_are_wrong(more: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=f"settings of groq: .*{said}"):
        Adapter(ModelSettings(provider="groq", name="m", **more))  # type: ignore[arg-type]
