"""Errors, names, log probabilities and models in the eyes of the `openai` client."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from faces.gateway.openai_client import TOOL, USER, client
from faces.gateway.running_gateway import standing
from gym_runtime.errors import ModelLimited, ModelRefused, ModelUnavailable
from gym_testing.small_system import answer, function_call

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("turn", [ModelRefused("no such thing"), None])
async def test_errors_have_the_clients_classes(turn: Any, stream: bool) -> None:
    from openai import BadRequestError

    more: Any = {"stream": True} if stream else {}
    async with standing(turn or answer("x")) as stand, client(stand) as made:
        with pytest.raises(BadRequestError, match="no such thing" if turn else "cannot be carried"):
            tools: Any = None if turn else [{"type": "custom", "custom": {"name": "x"}}]
            await made.chat.completions.create(model="m", messages=USER, tools=tools, **more)
        with pytest.raises(BadRequestError, match="no such thing" if turn else "not stored"):
            earlier: Any = None if turn else "resp_1"
            await made.responses.create(model="m", input="?", previous_response_id=earlier, **more)


async def test_an_error_in_a_stream_that_has_begun() -> None:
    from openai import APIError

    class Engine:
        async def respond(self, call: Any, context: Any) -> Any:
            await until.wait()
            raise ModelRefused("no such thing")

    until = anyio.Event()
    async with standing(Engine(), quiet_s=0.01) as stand, client(stand) as made:
        async with made.responses.stream(model="m", input="?") as stream:  # its headers say: at work
            until.set()
            events = [event async for event in stream]
        assert [event.type for event in events] == ["response.created", "response.failed"]
        failed: Any = events[-1]
        assert failed.response.status == "failed"
        assert (failed.response.error.code, failed.response.error.message) == (
            "invalid_prompt",
            "no such thing",
        )
        until = anyio.Event()
        chunks = await made.chat.completions.create(model="m", messages=USER, stream=True)
        until.set()
        with pytest.raises(APIError, match="no such thing"):
            await anext(chunks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("turn", "error", "status"),
    [
        (ModelUnavailable("overloaded", retry_after_s=60), "InternalServerError", 503),
        (ModelLimited("slow down", retry_after_s=60), "RateLimitError", 429),
    ],
)
async def test_what_may_pass_says_when_to_ask_again(turn: ModelUnavailable, error: str, status: int) -> None:
    import openai

    # The worker would wait longer than the deadline allows before it asks its engine again.
    async with standing(turn, timeout_s=9) as stand, client(stand) as made:
        with pytest.raises(getattr(openai, error), match=turn.message) as caught:
            await made.chat.completions.create(model="m", messages=USER)
    assert caught.value.status_code == status
    assert caught.value.response.headers["retry-after"] == "1"
    assert caught.value.response.headers["x-should-retry"] == "true"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_in_a_namespace_as_codex_makes_it(stream: bool) -> None:
    """The client finds its tool by namespace and name; the model and its history know one longer name."""
    tools: Any = [{"type": "namespace", "name": "agents", "description": "Helpers.", "tools": [TOOL]}]
    called = function_call("agents__weather", '{"city":  "Ulm"}', "call_1")
    asked: Any = {"model": "policy", "tools": tools, "input": list(USER)}
    async with standing(answer(called), answer("It rains.")) as stand, client(stand) as made:
        if stream:
            async with made.responses.stream(**asked) as events:
                said = await events.get_final_response()
        else:
            said = await made.responses.create(**asked)
        (call,) = said.output
        assert (call.type, call.namespace, call.name) == ("function_call", "agents", "weather")
        asked["input"] += [
            {
                **call.model_dump(include={"type", "namespace", "name", "call_id"}),
                "arguments": '{"city":"Ulm"}',
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
        ]
        assert (await made.responses.create(**asked)).output_text == "It rains."
    first, second = (call for call, _ in stand.engine.calls.items)
    (offered,) = json.loads(bytes(first.params))["tools"]
    assert offered == {**TOOL, "name": "agents__weather", "description": "Helpers."}
    assert json.loads(bytes(second.input[1])) == called


async def test_log_probabilities_in_a_stream() -> None:
    logprobs = [{"token": "x", "bytes": [120], "logprob": -0.5, "top_logprobs": []}]
    part = {"type": "output_text", "text": "x", "annotations": [], "logprobs": logprobs}
    turn = answer({"type": "message", "id": "m", "role": "assistant", "content": [part]})
    async with standing(turn) as stand, client(stand) as made:
        asked: Any = {"model": "policy", "input": "hi", "top_logprobs": 1, "stream": True}
        found = {one.type: one async for one in await made.responses.create(**asked)}
    assert found["response.content_part.added"].part.logprobs == []
    for name in ("delta", "done"):
        assert [one.logprob for one in found[f"response.output_text.{name}"].logprobs] == [-0.5]


async def test_models_are_the_pools() -> None:
    async with standing(answer("x")) as stand, client(stand) as made:
        assert [model.id async for model in made.models.list()] == ["policy", "judge"]
