"""Rollouts through the whole runtime on a real vLLM."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import gym_runtime
import pytest
from aiohttp import ClientSession
from gym_models.vllm import Adapter
from gym_models.vllm_engine.output_layer import PACK
from gym_runtime.messages import unpack_logprobs
from gym_runtime.messages.calls import Control, ModelAnswer
from gym_runtime.messages.outcomes import RolloutRecord
from models.model_calls import context, model_call
from models.vllm.counting import ROW, TURNS
from models.vllm.real_engine import URL, off_by, scored, settings
from models.vllm.recording_proxy import CHAT, GENERATE, RENDER, TOKENIZE, RecordingProxy

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not URL, reason="no vLLM: python tests/models/vllm/server.py DIR starts one"),
]


OTHER_WEIGHTS = os.environ.get("GYM_TEST_VLLM_OTHER_WEIGHTS", "")


FIRST_WEIGHTS = os.environ.get("GYM_TEST_VLLM_WEIGHTS", "")


ENVIRONMENT = str(Path(__file__).with_name("counting.py"))


def token_items(record: RolloutRecord) -> list[dict[str, Any]]:
    """The output items that carry a model call's tokens."""
    row = json.loads(bytes(record.row))
    return [item for item in row["response"]["output"] if "generation_token_ids" in item]


async def rollouts(url: str, count: int, **more: Any) -> list[RolloutRecord]:
    model = settings(url, **more)
    async with gym_runtime.connect(model=model, environments=[ENVIRONMENT], concurrency=count) as gym:
        return [
            record
            async for record in gym.rollouts(
                [ROW], environment=ENVIRONMENT, repeats=count, return_token_ids=True, max_output_tokens=60
            )
        ]


async def test_the_ids_of_fifty_rollouts_are_those_that_the_engine_reports() -> None:
    async with RecordingProxy(URL).running() as proxy:
        records = await rollouts(proxy.url, 50)
    assert [record.outcome for record in records if record.reward is None] == []
    said = [
        (answer["prompt_token_ids"], answer["choices"][0]["token_ids"])
        for _, answer in proxy.passed(GENERATE)
    ]
    sent = [request["token_ids"] for request, _ in proxy.passed(GENERATE)]
    assert sent == [ids for ids, _ in said]
    turns = 0
    for record in records:
        items = token_items(record)
        before: list[int] = []
        for item in items:
            ids = (item["prompt_token_ids"], item["generation_token_ids"])
            said.remove(ids)
            assert ids[0][: len(before)] == before
            assert len(item["generation_log_probs"]) == len(ids[1])
            assert item["weight_versions"][-1]["end"] == len(ids[1])
            assert "token_segment" not in item
            before = ids[0] + ids[1]
            turns += 1
    assert turns == TURNS * len(records)
    assert said == []
    anew = {json.dumps(answer["token_ids"]) for _, answer in proxy.passed(RENDER)}
    other = sum(json.dumps(ids) not in anew for ids in sent)
    print(f"\n{len(records)} rollouts, {turns} turns; {other} prompts differ from a rendering of the text")


async def test_without_scale_out_the_ids_are_exact_too_and_calls_are_parsed_by_the_engine() -> None:
    async with RecordingProxy(URL, scale_out=False).running() as proxy:
        records = await rollouts(proxy.url, 20)
    assert [record.outcome for record in records if record.reward is None] == []
    said = [
        (answer["prompt_token_ids"], answer["choices"][0]["token_ids"]) for _, answer in proxy.passed(CHAT)
    ]
    turns = 0
    for record in records:
        before: list[int] = []
        for item in token_items(record):
            assert item["type"] == "function_call"
            ids = (item["prompt_token_ids"], item["generation_token_ids"])
            said.remove(ids)
            assert ids[0][: len(before)] == before
            assert len(item["generation_log_probs"]) == len(ids[1])
            assert "token_segment" not in item
            before = ids[0] + ids[1]
            turns += 1
    assert turns == TURNS * len(records)
    assert said == []
    sent = [
        transfer["prompt_token_ids"]
        for request, _ in proxy.passed(CHAT)
        if (transfer := request.get("kv_transfer_params"))
    ]
    assert len(sent) == (TURNS - 1) * len(records)
    anew = {json.dumps(answer["tokens"]) for _, answer in proxy.passed(TOKENIZE)}
    assert any(json.dumps(ids) not in anew for ids in sent)


@pytest.mark.parametrize("scale_out", [True, False])
async def test_where_the_template_rewrites_the_past_segments_say_so(scale_out: bool) -> None:
    async with RecordingProxy(URL, scale_out=scale_out).running() as proxy:
        records = await rollouts(proxy.url, 6, extra_body={"chat_template_kwargs": {"forget_calls": True}})
    for record in records:
        items = token_items(record)
        assert [item.get("token_segment", 0) for item in items] == list(range(len(items)))
        assert len(items) == TURNS


async def test_swaps_of_weights_in_mid_rollout_abort_none() -> None:
    if not (OTHER_WEIGHTS and FIRST_WEIGHTS):
        pytest.skip("GYM_TEST_VLLM_WEIGHTS and GYM_TEST_VLLM_OTHER_WEIGHTS name two folders of weights")
    records: list[RolloutRecord] = []
    async with Adapter(settings()) as trainer, RecordingProxy(URL).running() as proxy:
        await trainer.control(Control(op="set_version", version="0"))

        async def make() -> None:
            records.extend(await rollouts(proxy.url, 64))

        version = 0
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(make)
                await proxy.seen(GENERATE, 12)
                while not records:
                    version += 1
                    path = OTHER_WEIGHTS if version % 2 else FIRST_WEIGHTS
                    answer = await trainer.control(Control(op="update", version=str(version), path=path))
                    assert (answer.paused, answer.version) == (False, str(version))
        finally:
            await trainer.control(Control(op="update", version="v1", path=FIRST_WEIGHTS))
    assert len(records) == 64
    assert all(record.reward is not None for record in records)
    spans = [item["weight_versions"] for record in records for item in token_items(record)]
    crossed = [one for one in spans if len(one) > 1]
    assert crossed
    for one in crossed:
        named = [int(span["version"]) for span in one]
        assert named == sorted(named)
        assert [0, *(span["end"] for span in one[:-1])] == [span["start"] for span in one]
    print(f"\n{version} updates; {len(crossed)} of {len(spans)} calls have tokens of several weights")


async def test_weights_that_the_trainer_transfers_are_used_for_every_token_of_the_past() -> None:
    """A prompt that the old weights have cached, as vLLM's own transfers leave it."""
    if not (OTHER_WEIGHTS and FIRST_WEIGHTS):
        pytest.skip("GYM_TEST_VLLM_WEIGHTS and GYM_TEST_VLLM_OTHER_WEIGHTS name two folders of weights")
    said = {"role": "user", "content": "Count the letters of each word. " * 60}
    call = model_call(said, return_tokens=True, max_output_tokens=8, temperature=0.0)

    async def transferred(adapter: Adapter, path: str) -> ModelAnswer:
        """The answer after a transfer of which the adapter hears nothing but the name."""
        await adapter.control(Control(op="pause"))
        load = {"method": "reload_weights", "kwargs": {"weights_path": path}}
        async with ClientSession() as http:
            for call_of_workers in (load, {"method": PACK}):
                async with http.post(
                    f"{URL.removesuffix('/v1')}/collective_rpc", json=call_of_workers
                ) as done:
                    assert done.status == 200
        await adapter.control(Control(op="set_version", version=path[-8:]))
        await adapter.control(Control(op="resume"))
        return await adapter.respond(call, context())

    async with Adapter(settings()) as adapter:
        try:
            await adapter.respond(call, context())
            got = await transferred(adapter, OTHER_WEIGHTS)
            await adapter.control(Control(op="update", version="v2", path=OTHER_WEIGHTS))
            want = await adapter.respond(call, context())
        finally:
            await adapter.control(Control(op="update", version="v1", path=FIRST_WEIGHTS))
    assert got.tokens is not None
    assert want.tokens is not None
    assert got.tokens.generation_ids == want.tokens.generation_ids
    found, right = (unpack_logprobs(one.tokens.log_probs) for one in (got, want))
    assert found == pytest.approx(right, abs=1e-3)


async def test_every_layer_has_the_new_weights() -> None:
    """The output layer too, which shares those of the embedding; an independent library's probabilities."""
    if not (OTHER_WEIGHTS and FIRST_WEIGHTS):
        pytest.skip("GYM_TEST_VLLM_WEIGHTS and GYM_TEST_VLLM_OTHER_WEIGHTS name two folders of weights")

    async with Adapter(settings()) as adapter, ClientSession() as http:
        try:
            for version, path in enumerate((OTHER_WEIGHTS, FIRST_WEIGHTS, OTHER_WEIGHTS)):
                await adapter.control(Control(op="update", version=str(version), path=path))
                async with http.post(f"{URL}/completions", json=scored(path)) as answer:
                    assert off_by(path, await answer.json()) < 0.1
        finally:
            await adapter.control(Control(op="update", version="v1", path=FIRST_WEIGHTS))
