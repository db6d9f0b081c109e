"""The engines of NeMo RL and of verl's NeMo Gym recipe: exact tokens by ``required_prefix_token_ids``."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from gym_models.vllm import Adapter
from gym_models.wire import discovery
from gym_runtime.errors import ModelRefused, NotThereYet, UsageError
from gym_runtime.messages.calls import ModelAnswer
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import TOOL, context, model_call, output
from models.vllm.adapter.test_adapter import continued, ids
from stubs.stub_vllm import StubVllm

pytestmark = pytest.mark.anyio


def settings(*urls: str) -> ModelSettings:
    return ModelSettings(provider="vllm", name="stub", urls=urls)


@asynccontextmanager
async def head(config: Any, status: int = 200) -> AsyncGenerator[str]:
    """A head server of NeMo Gym with this configuration; text is taken as it is."""
    text = config if isinstance(config, str) else json.dumps(config)

    async def show(request: web.Request) -> web.Response:
        return web.json_response(text, status=status)

    app = web.Application()
    app.router.add_get("/global_config_dict_yaml", show)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def turns(adapter: Adapter, count: int) -> list[ModelAnswer]:
    """A tool call, then answers, each after a further message of the user."""
    call = model_call(return_tokens=True, tools=[TOOL], temperature=1.0, top_p=1.0)
    answers = [await adapter.respond(call, context())]
    (called,) = [item for item in output(answers[0]) if item["type"] == "function_call"]
    new: dict[str, Any] = {"type": "function_call_output", "call_id": called["call_id"], "output": "cold"}
    while len(answers) < count:
        call = continued(call, answers[-1], new)
        answers.append(await adapter.respond(call, context()))
        new = {"role": "user", "content": "And now?"}
    return answers


@pytest.mark.parametrize("think", [False, True])
@pytest.mark.parametrize("kind", ["prefix", "reported"])
async def test_every_prompt_begins_with_all_tokens_before_it(kind: Any, think: bool) -> None:
    async with StubVllm(scale_out=False, token_prompts=kind, dev=False, think=think).running() as stub:
        async with Adapter(settings(stub.url)) as adapter:
            answers = await turns(adapter, 4)
        for before, after in pairwise(answers):
            assert ids(after)[0].startswith(ids(before)[1])
        seen = [(len(prompt), len(said)) for prompt, said in stub.generated]
        told = [(len(ids(one)[0]) // 4, (len(ids(one)[1]) - len(ids(one)[0])) // 4) for one in answers]
        assert told[-1] == seen[-1]
        assert all(one.tokens and len(one.tokens.log_probs) for one in answers)
        prompt, _ = stub.generated[-1]
        assert stub.text(prompt).count("<|im_start|>assistant\n") == 4
        # Once the engine is known, a turn is one rendering and one completion.
        asked = [path for path in stub.asked if path not in ("/health", "/metrics")]
        assert asked[-2:] == ["/tokenize", "/v1/chat/completions"]


async def test_a_worker_that_goes_on_with_anothers_rollout_knows_the_prefix_at_once() -> None:
    async with StubVllm(scale_out=False, token_prompts="prefix", dev=False).running() as stub:
        call = model_call(return_tokens=True, tools=[TOOL], top_p=1.0)
        async with Adapter(settings(stub.url)) as adapter:
            first = await adapter.respond(call, context())
        (called,) = [item for item in output(first) if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": called["call_id"], "output": "cold"}
        async with Adapter(settings(stub.url)) as adapter:
            second = await adapter.respond(continued(call, first, result), context())
        assert ids(second)[0].startswith(ids(first)[1])


async def test_what_the_engine_refuses_is_said() -> None:
    stub = StubVllm(scale_out=False, token_prompts="prefix", dev=False)
    async with stub.running(), Adapter(settings(stub.url)) as adapter:
        with pytest.raises(ModelRefused, match="top_p must be given"):
            await adapter.respond(model_call(return_tokens=True), context())


# -- where the engines are ---------------------------------------------------------------------------------


async def test_engines_are_found_at_the_head_server() -> None:
    pytest.importorskip("yaml", reason="needs pip install 'gym-runtime[nemo-gym]'")
    async with (
        StubVllm(scale_out=False, token_prompts="prefix", dev=False).running() as stub,
        head(f"policy_base_url:\n- {stub.url}\npolicy_model_name: stub\n") as url,
        Adapter(settings(f"head:{url}")) as adapter,
    ):
        assert len(await turns(adapter, 2)) == 2


async def test_what_a_head_server_says() -> None:
    pytest.importorskip("yaml", reason="needs pip install 'gym-runtime[nemo-gym]'")
    for config, found in (
        ({"policy_base_url": "http://a:1/v1"}, ["http://a:1/v1"]),
        ("policy_base_url: [http://a:1/v1, http://b:1/v1]", ["http://a:1/v1", "http://b:1/v1"]),
    ):
        async with head(config) as url:
            assert await discovery.look_up(f"head:{url}/") == found
    for config, said in (
        ({}, "knows no policy_base_url"),
        ("[1, 2]", "cannot be read"),
        ("a: [", "cannot be read"),
        ({"policy_base_url": 3}, "cannot be read"),
        ("!!python/object/apply:os.getcwd []", "cannot be read"),
    ):
        async with head(config) as url:
            with pytest.raises(UsageError, match=said):
                await discovery.look_up(f"head:{url}")
    async with head({}, status=500) as url:
        with pytest.raises(UsageError, match="answered 500"):
            await discovery.look_up(f"head:{url}")
    with pytest.raises(NotThereYet, match="no head server answers"):
        await discovery.look_up(f"head:{url}")
    with pytest.raises(UsageError, match="head:http://HOST:PORT"):
        await discovery.look_up("head:nothing")
