"""What is changed of the token endpoints' messages, and what passes through."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from gym_models.vllm_engine import tokens
from gym_models.vllm_engine.tokens import Choice, Generated, Rendering
from gym_runtime.messages.call_tokens import unpack_ids
from gym_runtime.messages.calls import WeightSpan


def rendering(**more: Any) -> Rendering:
    body = json.dumps(
        {"token_ids": [1, 8, 8, 7, 9, 3], "sampling_params": {"max_tokens": 40}, "stream": False, **more}
    )
    found = msgspec.json.decode(body, type=Rendering)
    found.body = body.encode()
    return found


def test_what_the_engine_rendered_passes_through_but_for_the_prompt() -> None:
    body = json.loads(tokens.generate_request(rendering(reasoning_ended=True, priority=None), [4, 5], None))
    assert body == {
        "token_ids": [4, 5],
        "sampling_params": {"max_tokens": 40},
        "reasoning_ended": True,
        "return_token_ids": True,
    }


def test_a_limit_that_a_rendering_leaves_out_is_said() -> None:
    body = json.loads(tokens.generate_request(rendering(sampling_params={"top_k": 4}), [4, 5], None))
    assert body["sampling_params"] == {"max_tokens": 16, "top_k": 4}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {}),
        ({"chat_template_kwargs": {"a": 1}}, {"chat_template_kwargs": {"a": 1}}),
        (
            {"reasoning_effort": "low"},
            {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "low"}},
        ),
        (
            {"reasoning_effort": "none", "chat_template_kwargs": {"a": 1}},
            {"chat_template_kwargs": {"enable_thinking": False, "a": 1, "reasoning_effort": "none"}},
        ),
        (
            {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
            {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "none"}},
        ),
        ({"tools": [{"type": "function"}], "tool_choice": "required"}, {"tools": [{"type": "function"}]}),
    ],
)
def test_what_decides_on_a_rendering_is_tokenized_and_nothing_else(
    more: dict[str, Any], expected: dict[str, Any]
) -> None:
    chat = {"model": "m", "logprobs": True, **more, "messages": [{"role": "user", "content": "é"}]}
    kept = {"model": "m", "messages": chat["messages"], **expected}
    body = json.dumps(chat).encode()
    assert json.loads(tokens.tokenize_request(body, prompted=True)) == kept
    unprompted = json.loads(tokens.tokenize_request(body, prompted=False))
    assert unprompted == {**kept, "add_generation_prompt": False}


@pytest.mark.parametrize("given", [None, {"do_remote_prefill": True}])
def test_a_chat_request_from_tokens_keeps_all_that_it_says(given: dict[str, Any] | None) -> None:
    chat = {"model": "m", "kv_transfer_params": given, "messages": [{"role": "user", "content": "é"}]}
    body = json.loads(tokens.chat_request_from(json.dumps(chat).encode(), [4, 5]))
    assert body == {**chat, "kv_transfer_params": {**(given or {}), "prompt_token_ids": [4, 5]}}


@pytest.mark.parametrize(
    ("offset", "so_far", "expected"),
    [(1, [1, 8, 8, 7, 5, 9], 1), (4, [1, 8, 8, 7, 5, 9], 6), (1, [1, 8, 5, 7, 5, 9], None)],
)
def test_images_stand_where_the_spliced_prompt_has_them(
    offset: int, so_far: list[int], expected: int | None
) -> None:
    """The history is four tokens; what the model wrote is two longer than its rendering."""
    places = {"image": [{"offset": offset, "length": 2}]}
    whole = rendering(features={"mm_hashes": {"image": ["abc"]}, "mm_placeholders": places})
    found = tokens.moved_features(whole, [*so_far, 9, 3], so_far, [1, 8, 8, 7])
    if expected is None:
        assert found is None
        return
    assert found is not None
    features = {
        "mm_hashes": {"image": ["abc"]},
        "mm_placeholders": {"image": [{"offset": expected, "length": 2}]},
    }
    assert json.loads(bytes(found)) == features
    assert json.loads(tokens.generate_request(whole, [*so_far, 9, 3], found))["features"] == features


@pytest.mark.parametrize(
    ("finish", "stop", "expected"),
    [
        ("stop", None, [5, 6]),  # the end of the turn
        ("stop", 2, [5, 6]),  # a token to stop at
        ("stop", "word", [5, 6, 2]),  # a text to stop at, whose tokens are text
        ("length", None, [5, 6, 2]),
    ],
)
def test_the_token_that_ends_a_turn_is_no_text(finish: str, stop: Any, expected: list[int]) -> None:
    choice = Choice(token_ids=[5, 6, 2], finish_reason=finish, stop_reason=stop)
    assert tokens.answered(choice) == expected
    said = json.loads(tokens.derender_request(Generated("g", [choice], [1]), b'{"messages":[]}'))
    assert said["generate_response"]["choices"][0]["token_ids"] == expected
    assert (said["prompt_tokens"], said["chat_request"]) == (1, {"messages": []})


def test_tokens_in_the_form_of_the_runtime() -> None:
    body = {
        "request_id": "g",
        "prompt_token_ids": [1, 2**17],
        "choices": [
            {
                "token_ids": [7],
                "logprobs": {"content": [{"token_id": 7, "logprob": -0.5, "rank": 1}]},
                "weight_versions": [{"version": "v1", "start": 0, "end": 1}],
            }
        ],
    }
    found = tokens.tokens(msgspec.json.decode(json.dumps(body), type=Generated))
    assert unpack_ids(found.prompt_ids) == [1, 2**17]
    assert unpack_ids(found.generation_ids) == [7]
    assert memoryview(found.log_probs).cast("f").tolist() == [-0.5]
    assert found.weights == [WeightSpan(version="v1", start=0, end=1)]
