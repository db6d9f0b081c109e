"""The adapter against a stub that has vLLM's token endpoints; `test_real` says the same on a real one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import Any

import anyio
import pytest
from gym_models.vllm import Adapter
from gym_runtime.cli.options import RunOptions, parse_model
from gym_runtime.conversations import prefix_after
from gym_runtime.errors import ModelRefused, ModelUnavailable, UsageError
from gym_runtime.messages.calls import Control, ModelAnswer, ModelCall, WeightSpan
from gym_runtime.model import Controllable, ModelSettings
from gym_runtime.testing.stub_vllm import StubVllm
from models.model_calls import TOOL, context, decoded, model_call, output
from msgspec import Raw
from msgspec.structs import replace

pytestmark = pytest.mark.anyio


def settings(*stubs: StubVllm, **more: Any) -> ModelSettings:
    return ModelSettings(provider="vllm", name="stub", urls=tuple(stub.url for stub in stubs), **more)


@pytest.fixture
async def stub() -> AsyncIterator[StubVllm]:
    async with StubVllm().running() as made:
        yield made


@pytest.fixture
async def thinker() -> AsyncIterator[StubVllm]:
    async with StubVllm(think=True).running() as made:
        yield made


def continued(call: ModelCall, answer: ModelAnswer, *new: dict[str, Any]) -> ModelCall:
    """The next turn's call, as a model worker makes it."""
    items = [*call.input, *decoded(answer).output]
    more = [Raw(json.dumps(item).encode()) for item in new]
    return replace(call, input=items + more, prefix=prefix_after(answer.tokens, len(items)))


def ids(answer: ModelAnswer) -> tuple[bytes, bytes]:
    """A call's prompt, and its prompt and completion."""
    assert answer.tokens is not None
    return answer.tokens.prompt_ids, answer.tokens.prompt_ids + answer.tokens.generation_ids


async def two_turns(
    stub: StubVllm, *, say: dict[str, Any] | None = None, **kwargs: bool
) -> list[ModelAnswer]:
    """A tool call and what comes after its result, or after what a user says."""
    metadata = {"chat_template_kwargs": json.dumps(kwargs)}
    async with Adapter(settings(stub)) as adapter:
        call = model_call(return_tokens=True, tools=[TOOL], metadata=metadata)
        first = await adapter.respond(call, context())
        (called,) = [item for item in output(first) if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": called["call_id"], "output": "cold"}
        new = (result,) if say is None else (result, say)
        return [first, await adapter.respond(continued(call, first, *new), context())]


async def test_the_next_prompt_starts_with_the_very_tokens_of_the_last_turn(stub: StubVllm) -> None:
    first, second = await two_turns(stub)
    assert ids(second)[0].startswith(ids(first)[1])
    assert [len(ids(answer)[0]) // 4 for answer in (first, second)] == [
        len(prompt) for prompt, _ in stub.generated
    ]
    last_prompt, _ = stub.generated[-1]
    assert stub.text(last_prompt).endswith(
        "</tool_call><|im_end|>\n<|im_start|>tool\ncold<|im_end|>\n<|im_start|>assistant\n"
    )
    assert output(second)[0]["content"][0]["text"] == "Done."
    usage = decoded(second).usage
    assert usage is not None
    assert usage.output_tokens == len("Done.") + 1


async def test_a_template_that_rewrites_the_past_begins_a_new_segment(stub: StubVllm) -> None:
    first, second = await two_turns(stub, forget_calls=True)
    assert not ids(second)[0].startswith(ids(first)[1])
    assert "(a call)" in stub.text(stub.generated[-1][0])


@pytest.mark.parametrize("drops", [False, True])
async def test_thinking_goes_back_unless_the_template_drops_it(thinker: StubVllm, drops: bool) -> None:
    again = {"role": "user", "content": "Are you sure?"}
    first, second = await two_turns(thinker, say=again, drop_thinking=drops)
    assert [item["type"] for item in output(first)] == ["reasoning", "function_call"]
    assert ids(second)[0].startswith(ids(first)[1]) is not drops
    assert ("<think>" in thinker.text(thinker.generated[-1][0])) is not drops


async def test_thinking_that_the_template_never_shows_begins_a_new_segment(thinker: StubVllm) -> None:
    async with Adapter(settings(thinker, options={"reasoning": "drop"})) as adapter:
        call = model_call(return_tokens=True)
        first = await adapter.respond(call, context())
        again = {"role": "user", "content": "Are you sure?"}
        second = await adapter.respond(continued(call, first, again), context())
    assert not ids(second)[0].startswith(ids(first)[1])


async def test_without_the_token_endpoints_every_turn_is_rendered_anew() -> None:
    async with StubVllm(scale_out=False).running() as stub:
        first, second = await two_turns(stub)
    assert not ids(second)[0].startswith(ids(first)[1])
    assert first.tokens is not None
    size = len(first.tokens.generation_ids)
    assert len(first.tokens.log_probs) == size
    assert first.tokens.weights == []


async def test_a_limit_and_a_cut_turn(stub: StubVllm) -> None:
    async with Adapter(settings(stub)) as adapter:
        call = model_call(return_tokens=True, max_output_tokens=3)
        first = await adapter.respond(call, context())
        assert decoded(first).status == "incomplete"
        assert output(first)[0]["content"][0]["text"] == "Don"
        second = await adapter.respond(
            continued(call, first, {"role": "user", "content": "Go on."}), context()
        )
    assert not ids(second)[0].startswith(ids(first)[1])


@pytest.mark.parametrize("limit", [15, 16, 17])
async def test_every_limit_holds(stub: StubVllm, limit: int) -> None:
    async with Adapter(settings(stub)) as adapter:
        call = model_call(return_tokens=True, tools=[TOOL], max_output_tokens=limit)
        tokens = (await adapter.respond(call, context())).tokens
    assert tokens is not None
    assert len(tokens.generation_ids) == 4 * limit


async def test_sampling_of_the_settings_wins(stub: StubVllm) -> None:
    async with Adapter(settings(stub, options={"sampling": {"max_tokens": 2}})) as adapter:
        for tokens in (True, False):
            call = model_call(return_tokens=tokens, max_output_tokens=5, metadata={"extra_body": "{}"})
            assert output(await adapter.respond(call, context()))[0]["content"][0]["text"] == "Do"


# -- weights ----------------------------------------------------------------------------------------------


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
        "/pause?mode=keep",
        "/collective_rpc",
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


# -- the rest ---------------------------------------------------------------------------------------------


async def test_a_call_given_up_stops_the_generation() -> None:
    async with StubVllm(token_s=0.05).running() as stub, Adapter(settings(stub)) as adapter:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(adapter.respond, model_call(return_tokens=True, tools=[TOOL]), context())
            await stub.started.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
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
    assert parse_model("vllm/Qwen/Qwen3-4B", **said).options == said
    of_file = ModelSettings.parse("vllm/Qwen/Qwen3-4B", options={"exact": False})
    options = RunOptions(file_model=of_file, **said)
    assert options.model_settings().options == {"exact": False, **said}
