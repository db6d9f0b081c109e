"""The vLLM adapter: token ids over turns, limits, sampling."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gym_models.vllm import Adapter
from gym_runtime.errors import ModelRefused, ModelUnavailable
from gym_runtime.messages.calls import ModelAnswer
from models.model_calls import TOOL, context, continued, decoded, model_call, output
from models.vllm.adapter.adapters import settings
from stubs.stub_vllm import SCALE_OUT, StubVllm
from tables import table

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[True, False], ids=["scale-out", "chat"])
async def either(request: pytest.FixtureRequest) -> AsyncIterator[StubVllm]:
    """A server with the token endpoints, and one whose Chat Completions take tokens."""
    async with StubVllm(scale_out=request.param).running() as made:
        yield made


@pytest.fixture(params=[True, False], ids=["scale-out", "chat"])
async def either_thinker(request: pytest.FixtureRequest) -> AsyncIterator[StubVllm]:
    async with StubVllm(scale_out=request.param, think=True).running() as made:
        yield made


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


SAID = {"content": [{"logprob": -0.5}]}
SPOILED = {
    "a negative id": {"token_ids": [-5], "logprobs": SAID},
    "an id of more than 32 bits": {"token_ids": [2**31], "logprobs": SAID},
    "an id of more than 64 bits": {"token_ids": [2**70], "logprobs": SAID},
    "fewer log-probabilities than tokens": {"token_ids": [1, 2], "logprobs": SAID},
    "more log-probabilities than tokens": {"token_ids": [1], "logprobs": {"content": SAID["content"] * 2}},
    "a log-probability that 32 bits do not hold": {
        "token_ids": [1],
        "logprobs": {"content": [{"logprob": -1e300}]},
    },
    "a name that is no id": {
        "token_ids": None,
        "logprobs": {"content": [{"logprob": -0.5, "token": "token_id:x"}]},
    },
}


@pytest.mark.parametrize("case", SPOILED)
async def test_tokens_that_cannot_be_trained_on_are_asked_for_again(either: StubVllm, case: str) -> None:
    async with Adapter(settings(either)) as adapter:
        either.spoiled = SPOILED[case]
        with pytest.raises(ModelUnavailable, match="something that is no response"):
            await adapter.respond(model_call(return_tokens=True), context())
        either.spoiled = {}
        assert ids(await adapter.respond(model_call(return_tokens=True), context()))[1]


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


@pytest.mark.parametrize("scale_out", [True, False])
async def test_a_prompt_that_goes_on_by_itself_is_rendered_once(scale_out: bool) -> None:
    async with StubVllm(scale_out=scale_out).running() as stub, Adapter(settings(stub)) as adapter:
        stub.says = "x"  # a word of one character: its tokens are those of the text rendered again
        call = model_call(return_tokens=True)
        first = await adapter.respond(call, context())
        stub.asked.clear()
        again = {"role": "user", "content": "Are you sure?"}
        second = await adapter.respond(continued(call, first, again), context())
    assert ids(second)[0].startswith(ids(first)[1])
    turn = list(SCALE_OUT) if scale_out else ["/tokenize", "/v1/chat/completions"]
    assert [path for path in stub.asked if path != "/metrics"] == turn


async def test_a_prompt_that_goes_on_by_itself_tells_nothing_of_the_engine() -> None:
    """It was taken for NeMo RL's, and turns of other conversations began new segments."""
    async with StubVllm(scale_out=False).running() as stub, Adapter(settings(stub)) as adapter:
        stub.says = "a\nb"  # cut off at the newline
        call = model_call(return_tokens=True, max_output_tokens=2)
        first = await adapter.respond(call, context())
        new = {"role": "user", "content": "Go on."}
        await adapter.respond(continued(call, first, new), context())
        stub.says = "two words"
        call = model_call(return_tokens=True)
        first = await adapter.respond(call, context())
        second = await adapter.respond(continued(call, first, new), context())
    assert ids(second)[0].startswith(ids(first)[1])


async def test_a_template_that_rewrites_the_past_begins_a_new_segment(either: StubVllm) -> None:
    first, second = await two_turns(either, forget_calls=True)
    assert not ids(second)[0].startswith(ids(first)[1])
    assert "(a call)" in either.text(either.generated[-1][0])


@table(
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


@pytest.mark.parametrize(("limit", "goes_on"), [(3, False), (100, True)])
async def test_a_turn_that_was_cut_off_at_a_newline_begins_a_new_segment(
    either: StubVllm, limit: int, goes_on: bool
) -> None:
    """Its newline was taken for that after the end, and the prompt went on in a turn without an end."""
    either.says = "ab\ncd"
    async with Adapter(settings(either)) as adapter:
        call = model_call(return_tokens=True, max_output_tokens=limit)
        first = await adapter.respond(call, context())
        again = {"role": "user", "content": "Go on."}
        second = await adapter.respond(continued(call, first, again), context())
    assert either.text(either.generated[-2][1]) == ("ab\ncd<|im_end|>" if goes_on else "ab\n")
    assert ids(second)[0].startswith(ids(first)[1]) is goes_on
    turns = either.text(either.generated[-1][0]).split("<|im_start|>")
    assert all(turn.endswith("<|im_end|>\n") for turn in turns[1:-1])


async def test_without_the_token_endpoints_a_turn_is_rendered_spliced_and_asked_in_chat() -> None:
    async with StubVllm(scale_out=False).running() as stub:
        first, second = await two_turns(stub)
    assert stub.asked[1:] == [
        *("/v1/chat/completions/render", "/tokenize", "/v1/chat/completions"),  # once, to learn what it can
        *("/tokenize", "/tokenize", "/detokenize", "/v1/chat/completions"),
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


async def test_tokens_are_counted_without_an_answer() -> None:
    """The count is of what the engine would read, tools included."""
    async with StubVllm().running() as stub, Adapter(settings(stub)) as adapter:
        call = model_call(return_tokens=True, tools=[TOOL])
        before = len(stub.asked)
        counted = await adapter.count(call, context())
        assert stub.asked[before:] == ["/tokenize"]
        answer = await adapter.respond(call, context())
    assert answer.tokens is not None
    assert counted == len(answer.tokens.prompt_ids) // 4 > 0


async def test_a_vllm_that_does_not_count() -> None:
    async with StubVllm(tokenize="absent").running() as stub, Adapter(settings(stub)) as adapter:
        with pytest.raises(ModelRefused, match="has no /tokenize"):
            await adapter.count(model_call(), context())
