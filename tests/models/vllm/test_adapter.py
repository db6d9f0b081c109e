"""The adapter against a stub that has vLLM's token endpoints; `test_real` says the same on a real one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Any

import anyio
import pytest
from gym_models.vllm import Adapter
from gym_runtime.cli.model_choice import parse_model
from gym_runtime.cli.options import ModelOptions
from gym_runtime.errors import ModelRefused, ModelUnavailable, UsageError
from gym_runtime.messages.calls import Control, ModelAnswer, ModelCall, WeightSpan, prefix_after
from gym_runtime.workers.adapter import Controllable, ModelSettings
from models.model_calls import TOOL, context, decoded, model_call, output
from msgspec import Raw
from msgspec.structs import replace
from stubs.stub_vllm import StubVllm

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


@pytest.fixture(params=[True, False], ids=["scale-out", "chat"])
async def either(request: pytest.FixtureRequest) -> AsyncIterator[StubVllm]:
    """A server with the token endpoints, and one whose Chat Completions take tokens."""
    async with StubVllm(scale_out=request.param).running() as made:
        yield made


@pytest.fixture(params=[True, False], ids=["scale-out", "chat"])
async def either_thinker(request: pytest.FixtureRequest) -> AsyncIterator[StubVllm]:
    async with StubVllm(scale_out=request.param, think=True).running() as made:
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
    stub: StubVllm,
    *,
    say: dict[str, Any] | None = None,
    reasoning: str = "reasoning_content",
    **kwargs: bool,
) -> list[ModelAnswer]:
    """A tool call and what comes after its result, or after what a user says."""
    metadata = {"chat_template_kwargs": json.dumps(kwargs)}
    async with Adapter(settings(stub, options={"reasoning": reasoning})) as adapter:
        call = model_call(return_tokens=True, tools=[TOOL], metadata=metadata)
        first = await adapter.respond(call, context())
        (called,) = [item for item in output(first) if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": called["call_id"], "output": "cold"}
        new = (result,) if say is None else (result, say)
        return [first, await adapter.respond(continued(call, first, *new), context())]


async def test_the_next_prompt_starts_with_the_very_tokens_of_the_last_turn(either: StubVllm) -> None:
    stub = either
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


async def test_a_template_that_rewrites_the_past_begins_a_new_segment(either: StubVllm) -> None:
    first, second = await two_turns(either, forget_calls=True)
    assert not ids(second)[0].startswith(ids(first)[1])
    assert "(a call)" in either.text(either.generated[-1][0])


@pytest.mark.parametrize(
    ("reasoning", "drops"),
    [
        ("reasoning_content", False),
        ("reasoning_content", True),
        ("reasoning", False),
        ("reasoning", True),
        ("think", False),  # within the text it is no template's to drop
    ],
)
async def test_thinking_goes_back_unless_the_template_drops_it(
    either_thinker: StubVllm, drops: bool, reasoning: str
) -> None:
    thinker = either_thinker
    again = {"role": "user", "content": "Are you sure?"}
    first, second = await two_turns(thinker, reasoning=reasoning, say=again, drop_thinking=drops)
    assert [item["type"] for item in output(first)] == ["reasoning", "function_call"]
    assert ids(second)[0].startswith(ids(first)[1]) is not drops
    assert ("<think>" in thinker.text(thinker.generated[-1][0])) is not drops


async def test_thinking_that_the_template_never_shows_begins_a_new_segment(
    either_thinker: StubVllm,
) -> None:
    async with Adapter(settings(either_thinker, options={"reasoning": "drop"})) as adapter:
        call = model_call(return_tokens=True)
        first = await adapter.respond(call, context())
        again = {"role": "user", "content": "Are you sure?"}
        second = await adapter.respond(continued(call, first, again), context())
    assert not ids(second)[0].startswith(ids(first)[1])


async def test_without_the_token_endpoints_a_turn_is_rendered_spliced_and_asked_in_chat() -> None:
    async with StubVllm(scale_out=False).running() as stub:
        first, second = await two_turns(stub)
    assert stub.asked[1:] == [
        *("/v1/chat/completions/render", "/tokenize", "/v1/chat/completions"),  # once, to learn what it can
        *("/tokenize", "/tokenize", "/v1/chat/completions"),
    ]
    assert [item["type"] for item in output(first)] == ["function_call"]
    for answer in (first, second):
        assert answer.tokens is not None
        assert len(answer.tokens.log_probs) == len(answer.tokens.generation_ids)
        assert answer.tokens.weights == []


async def test_new_conversations_cost_one_request_where_chat_takes_tokens() -> None:
    async with StubVllm(scale_out=False).running() as stub, Adapter(settings(stub)) as adapter:
        for _ in range(3):
            await adapter.respond(model_call(return_tokens=True), context())
    assert stub.asked[-2:] == ["/v1/chat/completions"] * 2


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ({"token_prompts": "ignored"}, "it takes no token ids in Chat Completions"),
        ({"token_prompts": "refused"}, "it refuses token ids in Chat Completions"),
        ({"tokenize": "otherwise"}, "its chat renders otherwise than its /tokenize"),
        ({"tokenize": "absent"}, "it has no /tokenize"),
    ],
)
async def test_an_engine_that_cannot_go_on_exactly_renders_every_turn_anew_and_this_is_said_once(
    lacks: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with StubVllm(scale_out=False, **lacks).running() as stub, Adapter(settings(stub)) as adapter:
        for _ in range(2):
            call = model_call(return_tokens=True)
            before = b""
            for turn in range(3):
                answer = await adapter.respond(call, context())
                assert output(answer)[0]["content"][0]["text"] == "Done."
                prompt, so_far = ids(answer)
                assert prompt.startswith(before) is (turn == 0)
                call = continued(call, answer, {"role": "user", "content": "Are you sure?"})
                before = so_far
        tokenized = stub.asked.count("/tokenize")
        await adapter.respond(call, context())
        assert stub.asked.count("/tokenize") == tokenized
    said = capsys.readouterr()
    assert (said.out + said.err).count("turns are rendered again from text") == 1
    assert reason in said.out + said.err


async def test_conversations_with_images_are_rendered_by_the_chat_itself() -> None:
    async with StubVllm(scale_out=False).running() as stub, Adapter(settings(stub)) as adapter:
        await adapter.respond(model_call(return_tokens=True), context())
        part = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
        call = model_call({"role": "user", "content": [part]}, return_tokens=True)
        first = await adapter.respond(call, context())
        text = {"role": "user", "content": "And now?"}
        second = await adapter.respond(continued(call, first, text), context())
        assert not ids(second)[0].startswith(ids(first)[1])
        call = model_call(return_tokens=True)
        first = await adapter.respond(call, context())
        second = await adapter.respond(continued(call, first, text), context())
        assert ids(second)[0].startswith(ids(first)[1])


async def test_a_limit_and_a_cut_turn(either: StubVllm) -> None:
    async with Adapter(settings(either)) as adapter:
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


@pytest.mark.slow
async def test_a_command_that_nobody_hears_is_an_error() -> None:
    async with AsyncExitStack() as server:
        stub = await server.enter_async_context(StubVllm().running())
        async with Adapter(settings(stub)) as adapter:
            await server.aclose()
            said = ""
            with anyio.fail_after(10):
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


# -- the rest ---------------------------------------------------------------------------------------------


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
    named = ModelOptions(model="vllm/Qwen/Qwen3-4B", engine_args="--max-model-len 4096")
    assert parse_model(named).options == said
    of_file = ModelSettings.parse("vllm/Qwen/Qwen3-4B", options={"exact": False})
    unnamed = ModelOptions(engine_args="--max-model-len 4096")
    assert parse_model(unnamed, of_file).options == {"exact": False, **said}
