"""Single calls at a real vLLM."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from aiohttp import ClientSession
from gym_models.vllm import Adapter
from gym_models.wire.load import read
from gym_runtime.messages.calls import Control, ModelAnswer
from models.model_calls import context, continued, decoded, model_call, output
from models.vllm.counting import BIAS, ROW
from models.vllm.real_engine import URL, settings
from models.vllm.recording_proxy import GENERATE, RecordingProxy
from msgspec.structs import replace

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not URL, reason="no vLLM: python tests/models/vllm/server.py DIR starts one"),
]


PARAMS: dict[str, Any] = ROW["responses_create_params"]


@pytest.fixture
async def adapter() -> AsyncIterator[Adapter]:
    async with Adapter(settings()) as made:
        yield made


@pytest.fixture(params=[True, False], ids=["scale-out", "chat"])
async def either(request: pytest.FixtureRequest) -> AsyncIterator[Adapter]:
    """With the token endpoints, and without."""
    async with (
        RecordingProxy(URL, scale_out=request.param).running() as proxy,
        Adapter(settings(proxy.url)) as made,
    ):
        yield made


def so_far(answer: ModelAnswer) -> bytes:
    assert answer.tokens is not None
    return answer.tokens.prompt_ids + answer.tokens.generation_ids


def prompt(answer: ModelAnswer) -> bytes:
    assert answer.tokens is not None
    return answer.tokens.prompt_ids


async def test_thinking_that_the_template_drops_begins_a_new_segment(either: Adapter) -> None:
    thinks = {"structured_outputs": {"regex": "<think>[a-z ]{5,20}</think>[A-Z][a-z]{3,10}\\."}}
    again = {"role": "user", "content": "Are you sure?"}
    for drops in (False, True):
        kwargs = json.dumps({"drop_thinking": drops})
        metadata = {"extra_body": json.dumps(thinks), "chat_template_kwargs": kwargs}
        call = model_call(return_tokens=True, metadata=metadata, max_output_tokens=60)
        first = await either.respond(call, context(limit_s=120))
        assert [item["type"] for item in output(first)] == ["reasoning", "message"]
        second = await either.respond(continued(call, first, again), context(limit_s=120))
        assert prompt(second).startswith(so_far(first)) is not drops


async def test_a_turn_that_was_cut_off_begins_a_new_segment(either: Adapter) -> None:
    call = model_call(return_tokens=True, max_output_tokens=4)
    first = await either.respond(call, context(limit_s=120))
    assert decoded(first).status == "incomplete"
    second = await either.respond(
        continued(call, first, {"role": "user", "content": "Go on."}), context(limit_s=120)
    )
    assert not prompt(second).startswith(so_far(first))


async def test_exact_and_plain_calls_say_the_same(adapter: Adapter) -> None:
    params = {"temperature": 0, "max_output_tokens": 24}
    exact = await adapter.respond(model_call(return_tokens=True, **params), context(limit_s=120))
    plain = await adapter.respond(model_call(**params), context(limit_s=120))
    assert output(exact)[0]["content"] == output(plain)[0]["content"]
    one, other = decoded(exact).usage, decoded(plain).usage
    assert one is not None
    assert other is not None
    assert (one.input_tokens, one.output_tokens) == (other.input_tokens, other.output_tokens)
    assert exact.tokens is not None
    assert len(exact.tokens.generation_ids) == 4 * one.output_tokens


@pytest.mark.parametrize("limit", [15, 16, 17])
async def test_every_limit_holds(adapter: Adapter, limit: int) -> None:
    endless = {"extra_body": json.dumps({"ignore_eos": True})}
    call = model_call(return_tokens=True, max_output_tokens=limit, metadata=endless)
    tokens = (await adapter.respond(call, context(limit_s=120))).tokens
    assert tokens is not None
    assert len(tokens.generation_ids) == 4 * limit


async def test_a_stop_string_is_no_part_of_the_text(adapter: Adapter) -> None:
    fixed = {"structured_outputs": {"regex": "one two three"}}
    stop = {"extra_body": json.dumps({**fixed, "stop": ["two"]})}
    for tokens in (True, False):
        call = model_call(return_tokens=tokens, metadata=stop, max_output_tokens=24)
        answer = await adapter.respond(call, context(limit_s=120))
        assert output(answer)[0]["content"][0]["text"] == "one "


@pytest.mark.parametrize("tokens", [True, False])
async def test_a_conversation_that_does_not_fit_is_an_incomplete_answer(
    adapter: Adapter, tokens: bool
) -> None:
    long = {"role": "user", "content": "word " * 4000}
    response = decoded(await adapter.respond(model_call(long, return_tokens=tokens), context(limit_s=120)))
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


async def test_a_conversation_that_has_grown_too_long_is_an_incomplete_answer(either: Adapter) -> None:
    call = model_call(return_tokens=True, max_output_tokens=8)
    first = await either.respond(call, context(limit_s=120))
    long = {"role": "user", "content": "word " * 4000}
    response = decoded(await either.respond(continued(call, first, long), context(limit_s=120)))
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_both_apis(api: str) -> None:
    # The Responses API has no bias, so no row may ask for it; the settings of this engine may, which has it.
    beyond = api == "responses"
    left_out = {"input", "metadata"} if beyond else {"input"}
    params = {name: value for name, value in PARAMS.items() if name not in left_out}
    call = model_call(**params, max_output_tokens=80)
    async with Adapter(settings(api=api, extra_body={"logit_bias": BIAS} if beyond else {})) as adapter:
        first = await adapter.respond(call, context(limit_s=120))
    async with Adapter(settings(api=api)) as adapter:
        item = output(first)[0]
        assert item["type"] == "function_call"
        assert json.loads(item["arguments"])["amount"] in (2, 3, 4)
        result = {"type": "function_call_output", "call_id": item["call_id"], "output": "cold"}
        plain = model_call(*output(first), result, max_output_tokens=8)
        second = await adapter.respond(
            replace(plain, input=[*call.input, *plain.input]), context(limit_s=120)
        )
        assert [item["type"] for item in output(second)] == ["message"]


async def test_structured_output(adapter: Adapter) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"]}
    form = {"type": "json_schema", "name": "place", "schema": schema, "strict": True}
    for tokens in (True, False):
        call = model_call(return_tokens=tokens, text={"format": form}, max_output_tokens=60)
        text = output(await adapter.respond(call, context(limit_s=120)))[0]["content"][0]["text"]
        assert json.loads(text) == {"city": "Rome"}


async def running(session: ClientSession) -> int:
    """How many requests the engine has at this moment."""
    async with session.get(URL.removesuffix("/v1") + "/metrics") as answer:
        load = read(await answer.read())
    assert load is not None
    return load.running + load.waiting


@pytest.mark.parametrize("tokens", [True, False])
async def test_a_call_given_up_stops_the_generation(adapter: Adapter, tokens: bool) -> None:
    endless = {"extra_body": json.dumps({"ignore_eos": True})}
    call = model_call(return_tokens=tokens, max_output_tokens=1900, metadata=endless)
    async with ClientSession() as session, anyio.create_task_group() as tasks:
        tasks.start_soon(adapter.respond, call, context(limit_s=300))
        while await running(session) < 1:
            await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    async with ClientSession() as session:
        with anyio.fail_after(15):
            while await running(session):
                await anyio.sleep(0.05)


async def test_paused_calls_wait_and_are_answered() -> None:
    """What was asked in the pause is sampled after it, from the weights as they are called then."""
    async with RecordingProxy(URL).running() as proxy, Adapter(settings(proxy.url)) as adapter:
        assert (await adapter.control(Control(op="pause"))).paused
        answers: list[ModelAnswer] = []

        async def ask() -> None:
            call = model_call(return_tokens=True, max_output_tokens=8)
            answers.append(await adapter.respond(call, context(limit_s=120)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await proxy.asked(GENERATE)
            held = await adapter.control(Control(op="set_version", version="after"))
            assert (held.paused, held.version, answers) == (True, "after", [])
            assert not (await adapter.control(Control(op="resume"))).paused
    (answer,) = answers
    assert answer.tokens is not None
    assert [span.version for span in answer.tokens.weights] == ["after"]
