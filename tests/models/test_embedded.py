"""The embedded engine itself: a real one, in a process that may die."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from gym_models.embedded import MAX_RESTARTS, Adapter
from gym_runtime.errors import ModelRefused, ModelUnavailable, TaskError
from gym_runtime.messages.rollout_settings import Sampling, lay_over
from gym_runtime.workers.adapter import ModelSettings
from installed import needs_built_in_model
from models.model_calls import TOOL, USER, context, model_call, output
from runtime.environment.image_samples import png

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(180)]
OTHER: dict[str, Any] = TOOL | {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Adapter]:
    """An engine that no test kills."""
    async with started() as made:
        yield made


@pytest.fixture
async def adapter() -> AsyncIterator[Adapter]:
    """One to be killed."""
    async with started() as made:
        yield made


@asynccontextmanager
async def started() -> AsyncIterator[Adapter]:
    needs_built_in_model()
    made = Adapter(ModelSettings.parse("embedded/smollm2-135m", options={"slots": 4}))
    await made.__aenter__()
    try:
        yield made
    finally:
        await made.__aexit__(None, None, None)


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(15):
        while not condition():
            await anyio.sleep(0.01)


async def kill(adapter: Adapter) -> None:
    """Kill the engine, and wait until its parent has noticed."""
    process = adapter._process  # pyright: ignore[reportPrivateUsage]
    os.kill(adapter.pid, signal.SIGKILL)
    await until(lambda: process.returncode is not None)


async def test_an_engine_that_dies_is_started_again_but_not_for_ever(adapter: Adapter) -> None:
    short = model_call(max_output_tokens=4)
    for _ in range(MAX_RESTARTS):
        before = adapter.pid
        await kill(adapter)
        failures: list[str] = []

        async def call(failures: list[str] = failures) -> None:
            try:
                await adapter.respond(short, context(limit_s=60))
            except ModelUnavailable as error:
                failures.append(error.message)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(call)
        assert failures
        assert all("died (exit code -9) and was started again" in said for said in failures)
        assert adapter.pid != before
        assert output(await adapter.respond(short, context(limit_s=60)))
    await kill(adapter)
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match=f"died {MAX_RESTARTS + 1} times.*stays down"):
            await adapter.respond(short, context(limit_s=60))


async def test_a_call_in_progress_when_the_engine_dies(adapter: Adapter) -> None:
    failures: list[ModelUnavailable] = []

    async def call() -> None:
        with pytest.raises(ModelUnavailable) as caught:
            await adapter.respond(model_call(max_output_tokens=500, metadata={}), context(limit_s=60))
        failures.append(caught.value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        await kill(adapter)
    assert len(failures) == 1
    answers: list[dict[str, Any]] = []
    for _ in range(2):  # the first of them may be the one that finds the engine dead
        try:
            answers = output(await adapter.respond(model_call(max_output_tokens=4), context(limit_s=60)))
        except ModelUnavailable:
            continue
    assert answers


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "add"},
        pytest.param(
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]},
            marks=pytest.mark.soak,
        ),
    ],
)
async def test_a_named_tool_is_called_as_its_schema_says(shared: Adapter, choice: dict[str, Any]) -> None:
    call = model_call(USER, tools=[TOOL, OTHER], tool_choice=choice, temperature=0, max_output_tokens=48)
    calls = [
        item
        for item in output(await shared.respond(call, context(limit_s=60)))
        if item["type"] == "function_call"
    ]
    assert calls
    for item in calls:
        assert item["name"] == "add"
        arguments = json.loads(item["arguments"])
        assert set(arguments) == {"a", "b"}
        assert all(isinstance(value, int) for value in arguments.values())


async def test_a_tool_that_the_row_does_not_have(shared: Adapter) -> None:
    call = model_call(tools=[TOOL], tool_choice={"type": "function", "name": "nothing"})
    with pytest.raises(TaskError, match="names no tool of the row: nothing"):
        await shared.respond(call, context())


async def test_an_image_is_refused_at_once(shared: Adapter) -> None:
    url = f"data:image/png;base64,{base64.b64encode(png(2, 2)).decode()}"
    image = {"type": "input_image", "image_url": url, "detail": "auto"}
    with pytest.raises(ModelRefused, match="image input is not supported"):
        await shared.respond(model_call({"role": "user", "content": [image]}), context())


@pytest.mark.soak
async def test_it_samples_as_it_is_told(shared: Adapter) -> None:
    """Real effects, not only fields that are taken: a forbidden token, a stop text, a seed."""

    async def text(**settings: Any) -> str:
        overrides = Sampling.read({"max_output_tokens": 24, **settings}).overrides()
        (item,) = output(await shared.respond(model_call(**lay_over({}, overrides)), context(limit_s=60)))
        return item["content"][0]["text"]

    plain = await text(temperature=0)
    assert await text(top_k=1) == plain
    assert await text(min_p=1.0) == plain
    word = plain.split()[2]
    stopped = await text(temperature=0, stop=[word])
    assert word not in stopped
    assert plain.startswith(stopped)
    assert (
        await text(temperature=0, repetition_penalty=10.0, frequency_penalty=2, presence_penalty=2) != plain
    )
    assert await text(seed=7) == await text(seed=7)
    assert len({await text(seed=seed, temperature=2.0) for seed in range(3)}) > 1
    assert await text(temperature=0, chat_template_kwargs={"unused": 1}) == plain
    assert await text(temperature=0, system_prompt="Answer in French, in one word.") != plain
    with pytest.raises(ModelRefused, match="the embedded engine has no 'reasoning_effort'"):
        await text(reasoning_effort="low")


async def test_a_biased_token_is_said_again_and_again(shared: Adapter) -> None:
    overrides = Sampling(temperature=0, max_output_tokens=4, logit_bias={"30": 100.0}).overrides()
    (item,) = output(await shared.respond(model_call(**lay_over({}, overrides)), context(limit_s=60)))
    said = item["content"][0]["text"].strip()
    assert len(set(said)) == 1
