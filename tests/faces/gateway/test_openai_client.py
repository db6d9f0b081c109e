"""Errors, names, log probabilities and models in the eyes of the `openai` client."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from faces.gateway.openai_client import TOOL, USER, client
from faces.gateway.running_gateway import standing
from gym_faces.dialects import responses_api
from gym_runtime.adapters import ModelAnswer
from gym_runtime.errors import ModelLimited, ModelRefused, ModelUnavailable
from gym_testing.small_system import answer, function_call
from models.openai.openai_adapter import entered
from stubs import stub_engine

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
        stream = await made.responses.create(model="m", input="?", stream=True)  # its headers say: at work
        until.set()
        assert (await anext(stream)).type == "response.created"
        with pytest.raises(APIError, match="no such thing"):
            await anext(stream)
        until = anyio.Event()
        chunks = await made.chat.completions.create(model="m", messages=USER, stream=True)
        until.set()
        with pytest.raises(APIError, match="no such thing"):
            await anext(chunks)


# An adapter's answer to a conversation that does not fit the engine's context.
TOO_LONG = ModelAnswer(response=responses_api.overflow("m"))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_that_is_too_long(stream: bool) -> None:
    from openai import APIError, BadRequestError

    more: Any = {"stream": True} if stream else {}
    async with standing(TOO_LONG) as stand, client(stand) as made:
        with pytest.raises(BadRequestError, match="maximum context length") as refused:
            await made.chat.completions.create(model="m", messages=USER, **more)
        assert refused.value.code == "context_length_exceeded"
        with pytest.raises(APIError, match="maximum context length") as failed:
            async for _ in await made.responses.create(model="m", input="?", **more):
                pass
        assert failed.value.code == "context_length_exceeded"
        (first, second) = (await stand.get(f"{stand.at('r.0.0')}/calls"))[1]["calls"]
        assert {one["error"]["name"] for one in (first, second)} == {"ModelRefused"}


async def test_codex_finds_the_same_in_the_failed_response() -> None:
    async with standing(TOO_LONG) as stand:
        _, said, answered = await stand.post("/v1/responses", {"model": "m", "input": "?", "stream": True})
    assert (answered.status, answered.content_type) == (200, "text/event-stream")
    events = [json.loads(line[6:]) for line in said.decode().splitlines() if line.startswith("data: ")]
    assert [one["type"] for one in events] == ["response.created", "error", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == "context_length_exceeded"


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


async def test_items_without_their_texts_in_a_stream() -> None:
    items = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text"}]},
        {"type": "message", "id": "m", "role": "assistant", "content": None},
    ]
    async with standing(answer(*items)) as stand, client(stand) as made:
        events = [one async for one in await made.responses.create(model="m", input="hi", stream=True)]
    assert events[-1].type == "response.completed"


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_in_chat_completions(stream: bool) -> None:
    asked: Any = {"model": "policy", "messages": USER, "logprobs": True, "top_logprobs": 1}
    with stub_engine.running() as stub:
        async with entered(stub.url, api="chat") as engine, standing(engine) as stand, client(stand) as made:
            said = await made.chat.completions.create(**asked, stream=stream)
            choices = [one.choices[0] async for one in said] if stream else said.choices
    found: Any = [one.logprobs.content for one in choices if one.logprobs]
    assert [one.token for one in found[0]]
    assert all(one.logprob <= 0 and one.bytes for one in found[0])
    assert len(found) == 1


async def test_models_are_the_pools() -> None:
    async with standing(answer("x")) as stand, client(stand) as made:
        assert [model.id async for model in made.models.list()] == ["policy", "judge"]
