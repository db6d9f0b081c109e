"""The vLLM adapter: weights, aborts, settings."""

from __future__ import annotations

from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Any, Literal

import anyio
import pytest
from gym_models.vllm import Adapter
from gym_runtime.cli.models import parse_model
from gym_runtime.cli.options import ModelOptions
from gym_runtime.errors import ModelRefused, ModelUnavailable, UsageError
from gym_runtime.messages.calls import Control, ModelAnswer, WeightSpan
from gym_runtime.workers.adapter import Controllable, ModelSettings
from models.model_calls import TOOL, context, model_call
from models.vllm.adapter.adapters import settings
from stubs.stub_vllm import StubVllm

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_an_update_in_mid_answer_aborts_nothing_and_shows_in_the_spans() -> None:
    async with StubVllm(token_s=0.01).running() as stub, Adapter(settings(stub)) as adapter:
        assert isinstance(adapter, Controllable)
        answers: list[ModelAnswer] = []

        async def ask() -> None:
            answers.append(await adapter.respond(model_call(return_tokens=True, tools=[TOOL]), context()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await stub.started.wait()
            state = await adapter.control(Control(op="update", version="v2", path="/weights/2"))
        assert (state.paused, state.version) == (False, "v2")
        (answer,) = answers
    assert answer.tokens is not None
    first, second = answer.tokens.weights
    size = len(answer.tokens.generation_ids) // 4
    assert (first.version, first.start, second.version, second.end) == ("default", 0, "v2", size)
    assert first.end == second.start
    assert answer.weight_version == "v2"
    assert stub.aborted == 0
    assert stub.commands == [
        "/collective_rpc get_model_inspection",
        "/pause?mode=keep",
        "/collective_rpc reload_weights",
        "/reset_prefix_cache?reset_running_requests=true",
        "/update_weight_version",
        "/resume",
    ]


async def test_paused_calls_wait_for_resume(stub: StubVllm) -> None:
    async with Adapter(settings(stub)) as adapter:
        assert (await adapter.control(Control(op="pause"))).paused
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(adapter.respond, model_call(return_tokens=True), context())
            await stub.started.wait()
            updated = await adapter.control(Control(op="update", version="v2", path="/weights/2"))
            assert (updated.paused, updated.version) == (True, "v2")
            assert stub.generated == []
            assert not (await adapter.control(Control(op="resume"))).paused
    assert len(stub.generated) == 1


async def test_an_update_that_fails_leaves_the_engine_running(stub: StubVllm) -> None:
    async with Adapter(settings(stub)) as adapter:
        with pytest.raises(ModelUnavailable, match="no such weights"):
            await adapter.control(Control(op="update", version="v2", path="/nowhere"))
        state = await adapter.control(Control(op="state"))
        assert (state.paused, state.version) == (False, "default")
        with pytest.raises(ModelRefused, match="needs the path"):
            await adapter.control(Control(op="update", version="v2"))


@pytest.mark.parametrize("cpu", ["", "untied", "tied and packs"])
async def test_an_update_reaches_the_output_layer_too(cpu: Literal["", "untied", "tied and packs"]) -> None:
    async with StubVllm(cpu=cpu).running() as stub, Adapter(settings(stub)) as adapter:
        await adapter.control(Control(op="update", version="v2", path="/weights/2"))
        assert (stub.weights, stub.output_layer) == ("/weights/2", "/weights/2")


async def test_an_update_that_would_keep_the_old_output_layer_is_refused() -> None:
    async with StubVllm(cpu="tied").running() as stub, Adapter(settings(stub)) as adapter:
        with pytest.raises(
            ModelRefused, match=r"--worker-extension-cls gym_models.*tie_word_embeddings false"
        ):
            await adapter.control(Control(op="update", version="v2", path="/weights/2"))
        state = await adapter.control(Control(op="state"))
        assert (state.paused, state.version, stub.weights) == (False, "default", "/weights/0")


async def test_every_replica_is_told(stub: StubVllm, thinker: StubVllm) -> None:
    async with Adapter(settings(stub, thinker)) as adapter:
        assert (await adapter.control(Control(op="set_version", version="v9"))).version == "v9"
    assert (stub.version, thinker.version) == ("v9", "v9")


async def test_a_replica_that_is_out_keeps_weights_from_changing(stub: StubVllm) -> None:
    async with StubVllm().running() as gone:
        pass
    async with Adapter(settings(stub, gone)) as adapter:
        with pytest.raises(ModelUnavailable, match="is out"):
            await adapter.control(Control(op="update", version="v2", path="/weights/2"))
        assert stub.commands == []


@pytest.mark.slow
async def test_a_command_that_nobody_hears_is_an_error() -> None:
    async with AsyncExitStack() as server:
        stub = await server.enter_async_context(StubVllm().running())
        async with Adapter(settings(stub)) as adapter:
            await server.aclose()
            said = ""
            with anyio.fail_after(15):
                while "reached no engine" not in said:
                    with pytest.raises(ModelUnavailable) as raised:
                        await adapter.control(Control(op="pause"))
                    said = str(raised.value)
                    await anyio.sleep(0.05)


async def test_plain_calls_carry_the_version_that_was_said_last() -> None:
    async with StubVllm(scale_out=False, dev=False).running() as stub, Adapter(settings(stub)) as adapter:
        with pytest.raises(ModelRefused, match="VLLM_SERVER_DEV_MODE=1"):
            await adapter.control(Control(op="pause"))
        assert (await adapter.respond(model_call(), context())).weight_version is None
        assert (await adapter.control(Control(op="set_version", version="v3"))).version == "v3"
        assert (await adapter.respond(model_call(), context())).weight_version == "v3"
        answer = await adapter.respond(model_call(return_tokens=True), context())
    assert answer.tokens is not None
    assert answer.tokens.weights == [WeightSpan(version="v3", start=0, end=6)]


@pytest.mark.parametrize("scale_out", [True, False])
async def test_a_call_given_up_stops_the_generation(scale_out: bool) -> None:
    async with (
        StubVllm(scale_out=scale_out, token_s=0.05).running() as stub,
        Adapter(settings(stub)) as adapter,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(adapter.respond, model_call(return_tokens=True, tools=[TOOL]), context())
            await stub.started.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(15):
            await stub.left.wait()
    assert stub.generated == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"options": {"exakt": True}}, "exakt"),
        ({"api": "completions"}, "completions"),
        (
            {"urls": ("http://127.0.0.1:1/v1",), "options": {"engine_args": "--seed 1"}},
            "a server has its own",
        ),
    ],
)
def test_settings_that_are_wrong(more: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Adapter(ModelSettings(**{"provider": "vllm", "name": "stub", "urls": ("http://x/v1",), **more}))


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_addresses_vllm_has_to_be_installed() -> None:
    with pytest.raises(UsageError, match=r'pip install "gym-runtime\[vllm\]"'):
        Adapter(ModelSettings.parse("vllm/Qwen/Qwen3-4B"))


def test_engine_arguments_of_the_command_line_reach_the_adapter() -> None:
    said = {"engine_args": "--max-model-len 4096"}
    named = ModelOptions(model="vllm/Qwen/Qwen3-4B", engine_args="--max-model-len 4096")
    assert parse_model(named).options == said
    of_file = ModelSettings.parse("vllm/Qwen/Qwen3-4B", options={"exact": False})
    unnamed = ModelOptions(engine_args="--max-model-len 4096")
    assert parse_model(unnamed, of_file).options == {"exact": False, **said}
