"""What every adapter promises, on every adapter, with real servers behind those that need one."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from gym_runtime.environment import catalogue
from gym_runtime.errors import ModelRefused, TaskError
from gym_runtime.workers.adapter import Adapter, ModelSettings
from installed import needs_built_in_model
from models.model_calls import TOOL, USER, context, decoded, model_call, output
from stubs.stub_engine import StubEngine

pytestmark = pytest.mark.anyio

EMBEDDED = pytest.param("embedded", marks=[pytest.mark.slow, pytest.mark.timeout(180)])
REAL = "GYM_TEST_VLLM_URL"
VLLM = pytest.param(
    "vllm-real",
    marks=[
        pytest.mark.slow,
        pytest.mark.timeout(180),
        pytest.mark.skipif(
            REAL not in os.environ, reason="needs a vLLM: python tests/models/vllm/server.py DIR"
        ),
    ],
)
STUBBED = ["openai-responses", "openai-chat", "openai-auto", "azure", "groq", "vllm", "record", "replicas"]
ADAPTERS = ["scripted", *STUBBED, EMBEDDED, VLLM]
GENERATES = ("embedded", "vllm-real")


def settings(kind: str, url: str, folder: Path) -> ModelSettings:
    """An adapter's, for the stub at an address."""
    match kind:
        case "scripted":
            return ModelSettings.parse("scripted/tool-then-message")
        case "embedded":
            return ModelSettings.parse("embedded/smollm2-135m")
        case "vllm-real":
            return ModelSettings.parse("vllm/", urls=(os.environ[REAL],))
        case "record":
            file = {"record": str(folder / "calls.jsonl")}
            return ModelSettings.parse("record/openai/stub", urls=(url,), options=file)
        case "replicas":
            (folder / "replicas.txt").write_text(url)
            return ModelSettings.parse("openai/stub", urls=(f"file:{folder / 'replicas.txt'}",))
        case "azure":
            return ModelSettings.parse("azure/stub", urls=(url.removesuffix("/v1"),))
        case "groq" | "vllm":
            return ModelSettings.parse(f"{kind}/stub", urls=(url,))
        case _:
            return ModelSettings.parse("openai/stub", urls=(url,), api=kind.removeprefix("openai-"))


@pytest.fixture(scope="module", params=ADAPTERS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
async def adapter(
    kind: str, stub: StubEngine, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Adapter]:
    """One for all tests: a built-in engine takes a second of the processor to start."""
    if kind == "embedded":
        needs_built_in_model()
    given = settings(kind, stub.url, tmp_path_factory.mktemp(kind))
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("AZURE_OPENAI_API_KEY", "GROQ_API_KEY"):
            patch.setenv(variable, "any")
        made: Adapter = catalogue.load("models", given.provider).Adapter(given)
        await made.__aenter__()
        try:
            yield made
        finally:
            await made.__aexit__(None, None, None)


async def test_a_message(adapter: Adapter) -> None:
    response = decoded(await adapter.respond(model_call(max_output_tokens=16), context(limit_s=60.0)))
    assert response.object == "response"
    assert response.id
    assert response.model
    assert response.status in ("completed", "incomplete")
    (item,) = [json.loads(bytes(raw)) for raw in response.output]
    assert item["type"] == "message"
    assert item["role"] == "assistant"
    assert item["content"][0]["type"] == "output_text"
    assert item["content"][0]["text"]


async def test_usage(adapter: Adapter) -> None:
    usage = decoded(await adapter.respond(model_call(max_output_tokens=16), context(limit_s=60.0))).usage
    assert usage is not None
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


async def test_a_tool_call_then_a_message(adapter: Adapter, kind: str) -> None:
    if kind == "vllm-real":
        pytest.skip("its weights are noise, which rarely ends a text; test_real has calls under a grammar")
    params = {"tools": [TOOL], "tool_choice": "required", "temperature": 0, "max_output_tokens": 128}
    first = output(await adapter.respond(model_call(**params), context(limit_s=60.0)))
    calls = [item for item in first if item["type"] == "function_call"]
    assert calls
    assert calls[0]["name"] == "get_weather"
    assert calls[0]["call_id"]
    assert isinstance(json.loads(calls[0]["arguments"])["city"], str)
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": '{"weather": "cold"}'}
        for item in calls
    ]
    params |= {"tool_choice": "none", "max_output_tokens": 16}
    second = output(
        await adapter.respond(model_call(USER, *first, *results, **params), context(limit_s=60.0))
    )
    assert [item["type"] for item in second] == ["message"]


@pytest.mark.slow
async def test_many_at_once(adapter: Adapter, kind: str) -> None:
    count = 16 if kind in GENERATES else 512
    ids: set[str] = set()

    async def one(number: int) -> None:
        mine = context(rollout=f"run.{number}.0", limit_s=120.0)
        ids.add(decoded(await adapter.respond(model_call(max_output_tokens=4, temperature=0.0), mine)).id)

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(one, number)
    assert len(ids) == count


async def test_tokens(adapter: Adapter, kind: str) -> None:
    if kind == "openai-responses":
        # No engine gives them there, and a trainer would learn it after all rollouts.
        with pytest.raises(ModelRefused, match="Responses API, which has no token ids"):
            await adapter.respond(model_call(return_tokens=True), context())
        return
    call = model_call(return_tokens=True, max_output_tokens=8)
    answer = await adapter.respond(call, context(limit_s=60.0))
    usage = decoded(answer).usage
    assert answer.tokens is not None
    assert usage is not None
    assert len(answer.tokens.generation_ids) == len(answer.tokens.log_probs) == 4 * usage.output_tokens
    if kind != "embedded":  # llama.cpp does not give the prompt's
        assert len(answer.tokens.prompt_ids) == 4 * usage.input_tokens


async def test_cancellation_leaves_the_adapter_usable(adapter: Adapter) -> None:
    with anyio.move_on_after(0.02):
        await adapter.respond(model_call(max_output_tokens=400), context(limit_s=60.0))
    assert output(await adapter.respond(model_call(max_output_tokens=4), context(limit_s=60.0)))


async def test_a_row_that_cannot_be_carried(adapter: Adapter, kind: str) -> None:
    if kind not in ("openai-chat", "embedded"):
        pytest.skip("this adapter carries it")
    with pytest.raises(TaskError, match="web_search_call"):
        await adapter.respond(model_call({"type": "web_search_call", "id": "w"}), context(limit_s=60.0))
