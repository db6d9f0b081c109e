"""Sampling parameters reach each engine under its own name, or are refused by theirs before it is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from gym_faces.dialects import side_channel
from gym_faces.dialects.chat_request import ChatVariant
from gym_models import azure, embedded, hosted, openai, vllm
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Engine
from gym_runtime.errors import ModelRefused, TaskError
from gym_runtime.messages.calls import ModelCall
from gym_runtime.messages.rollout_settings import BEYOND_RESPONSES, Sampling
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import context, model_call, output
from models.proxy import proxied
from stubs import stub_engine
from stubs.stub_engine import StubEngine
from tables import table

pytestmark = pytest.mark.anyio

VALUES: dict[str, Any] = {
    "top_k": 20,
    "min_p": 0.05,
    "seed": 7,
    "stop": ["END"],
    "presence_penalty": 0.5,
    "frequency_penalty": 0.25,
    "repetition_penalty": 1.1,
    "logit_bias": {"12": -1.0},
    "chat_template_kwargs": {"enable_thinking": False},
}


def sampled(**settings: Any) -> ModelCall:
    """A call as a run with these settings makes it of a row that says nothing."""
    from gym_runtime.messages.rollout_settings import lay_over

    return model_call(**lay_over({}, Sampling.read(settings).overrides()))


def model(*urls: str, provider: str = "openai", **more: Any) -> ModelSettings:
    return ModelSettings(provider=provider, name="stub", urls=urls, **more)


def sent(engine: StubEngine) -> dict[str, Any]:
    return json.loads(engine.last().body)


@pytest.fixture
def only_responses() -> Iterator[StubEngine]:
    with stub_engine.running("--api", "responses") as engine:
        yield engine


def test_these_are_all() -> None:
    assert set(VALUES) == set(BEYOND_RESPONSES)


@pytest.mark.parametrize("adapter", [openai.Adapter, vllm.Adapter])
@pytest.mark.parametrize("api", ["auto", "chat"])
async def test_an_engine_of_unknown_kind_is_asked_for_all_of_them(
    stub: StubEngine, adapter: Any, api: str
) -> None:
    settings = model(stub.url, api=api)
    async with adapter(settings) as engine:
        await engine.respond(model_call(), context())  # by which `auto` finds out which API there is
        assert output(await engine.respond(sampled(**VALUES, reasoning_effort="low"), context()))
    assert stub.last().path.endswith("/chat/completions")
    body = sent(stub)
    assert {name: body[name] for name in VALUES} == VALUES
    assert body["reasoning_effort"] == "low"


@table("name", sorted(VALUES))
async def test_the_responses_api_has_none_of_them(stub: StubEngine, name: str) -> None:
    before = stub.stats().requests
    async with openai.Adapter(model(stub.url, api="responses")) as adapter:
        after = stub.stats().requests
        with pytest.raises(ModelRefused) as caught:
            await adapter.respond(sampled(**{name: VALUES[name]}), context())
        assert output(await adapter.respond(sampled(reasoning_effort="low"), context()))
        assert (stub.stats().requests, sent(stub)["reasoning"]) == (after + 1, {"effort": "low"})
    assert before <= after
    assert f"'{name}'" in caught.value.message
    assert stub.url in caught.value.message


async def test_an_engine_with_the_responses_api_only(only_responses: StubEngine) -> None:
    async with openai.Adapter(model(only_responses.url)) as adapter:
        with pytest.raises(ModelRefused, match="top_k can only be asked for in Chat Completions, and http"):
            await adapter.respond(sampled(top_k=5), context())


@pytest.mark.parametrize("name", ["top_k", "min_p", "repetition_penalty", "chat_template_kwargs"])
async def test_openai_lacks_some(stub: StubEngine, name: str) -> None:
    async with proxied(stub.url) as proxy:
        endpoint = Endpoint(url="http://api.openai.com/v1", headers={}, private=False)
        engine = openai.Adapter(model("http://api.openai.com/v1", api="chat"))._engine(endpoint)  # pyright: ignore[reportPrivateUsage]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HTTP_PROXY", proxy.url)
            patch.delenv("NO_PROXY", raising=False)
            async with engine:
                with pytest.raises(ModelRefused, match=f"OpenAI has no '{name}'"):
                    await engine.respond(sampled(**{name: VALUES[name]}), context())
                assert output(await engine.respond(sampled(seed=7, stop=["END"]), context()))
    assert (sent(stub)["seed"], sent(stub)["stop"]) == (7, ["END"])


async def test_azure_lacks_what_openai_lacks(stub: StubEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
    settings = model(stub.url.removesuffix("/v1"), provider="azure", api="chat")
    async with azure.Adapter(settings) as adapter:
        with pytest.raises(ModelRefused, match="Azure has no 'top_k'"):
            await adapter.respond(sampled(top_k=1, seed=1), context())
        assert output(await adapter.respond(sampled(seed=1), context()))
    assert sent(stub)["seed"] == 1


@pytest.mark.parametrize(
    ("provider", "settings", "body", "lacks"),
    [
        ("together", {"top_k": 5, "seed": 1}, {"top_k": 5, "seed": 1}, ""),
        ("mistral", {"seed": 1}, {"random_seed": 1}, ""),
        ("mistral", {"top_k": 5}, {}, "top_k"),
        ("groq", {"logit_bias": {"1": 1}}, {}, "logit_bias"),
        ("anthropic", {"reasoning_effort": "low"}, {}, "reasoning_effort"),
        ("anthropic", {"seed": 1, "stop": ["x"]}, {}, "seed"),
    ],
)
async def test_hosts_have_what_their_table_says(
    provider: str, settings: Any, body: Any, lacks: str, monkeypatch: pytest.MonkeyPatch, stub: StubEngine
) -> None:
    monkeypatch.setenv(hosted.hosts()[provider].key, "k")
    mine = model(stub.url, provider=provider)
    async with hosted.Adapter(mine) as adapter:
        if lacks:
            with pytest.raises(ModelRefused, match=f"{provider} has no '{lacks}'"):
                await adapter.respond(sampled(**settings), context())
        else:
            assert output(await adapter.respond(sampled(**settings), context()))
            assert {name: sent(stub)[name] for name in body} == body
            assert not {"seed"} & set(sent(stub)) - set(body)


async def test_a_configuration_knows_a_host_better(monkeypatch: pytest.MonkeyPatch, stub: StubEngine) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "k")
    mine = model(stub.url, provider="groq", options={"has": ["top_k"], "lacks": ["seed"]})
    async with hosted.Adapter(mine) as adapter:
        assert output(await adapter.respond(sampled(top_k=5), context()))
        with pytest.raises(ModelRefused, match="groq has no 'seed'"):
            await adapter.respond(sampled(seed=5), context())


async def test_the_embedded_engine_calls_one_otherwise(stub: StubEngine) -> None:
    dialect = embedded._DIALECT  # pyright: ignore[reportPrivateUsage]
    plain = ChatVariant(engine=dialect.engine, sampling=dialect.sampling, names=dialect.names)
    engine = Engine(Endpoint(url=stub.url, headers={}, private=True), model="stub", api="chat", dialect=plain)
    async with engine:
        assert output(await engine.respond(sampled(repetition_penalty=1.1, top_k=5), context()))
        assert (sent(stub)["repeat_penalty"], "repetition_penalty" in sent(stub)) == (1.1, False)
        with pytest.raises(ModelRefused, match="the embedded engine has no 'reasoning_effort'"):
            await engine.respond(sampled(reasoning_effort="low"), context())


@table("api", ["responses", "chat"])
@table("extra", [{"model": "other"}, {"n": 4}, {"stream": True}, {"api_key": "k"}])
async def test_no_call_says_who_is_asked_nor_how_often(
    stub: StubEngine, api: str, extra: dict[str, Any]
) -> None:
    """Whoever makes the call: rows are refused when they are read, harnesses here."""
    async with openai.Adapter(model(stub.url, api=api)) as adapter:
        with pytest.raises(TaskError, match=f"extra_body: '{next(iter(extra))}'"):
            call = model_call(metadata={"extra_body": json.dumps(extra)})
            await adapter.respond(call, context())


def test_every_parameter_is_known_to_the_tables() -> None:
    for host in hosted.hosts().values():
        assert {*host.has, *host.lacks, *host.names} <= side_channel.ALL
