"""What a model writes may fail its rollout, and neither ends a training nor holds it up."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from gym_runtime.environment.verdict import Reply, make_response
from gym_runtime.errors import TaskError
from gym_runtime.messages.chat import encoded, response_items
from gym_runtime.messages.conversation import tool_error
from gym_runtime.trainers.hermes import said
from gym_runtime.trainers.openrlhf import without_end_tokens

DEEP = "[" * 100_000


@pytest.mark.parametrize("arguments", [DEEP, DEEP + "]" * 100_000, '"\\ud800"', "\x00", "\ud800"])
def test_a_call_that_cannot_be_read_is_text(arguments: str) -> None:
    text = f'<tool_call>{{"name": "add", "arguments": {arguments}}}</tool_call>'
    assert said(text, tools=True) == (text, (), "")


def test_half_a_surrogate_pair_is_judged_like_any_text() -> None:
    """TRL reads a call's arguments with Python's ``json``, which keeps such halves."""
    arguments = json.loads('{"city": "\\ud83d"}')
    function = {"name": "weather", "arguments": arguments}
    items = response_items(
        [{"role": "assistant", "content": "\udc00x", "tool_calls": [{"function": function}]}]
    )
    transcript = Reply(make_response(*items))
    assert transcript.text == "\ufffdx"
    assert transcript.function_calls[0].arguments == '{"city":"\ufffd"}'
    assert encoded(["\ud83d\ude00"]) == '["\U0001f600"]'.encode()


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]},
        {"role": "assistant", "tool_calls": ["add"]},
        {"content": "x"},
        "x",
    ],
)
def test_a_message_of_another_shape_is_an_error_of_its_rollout(message: Any) -> None:
    with pytest.raises(TaskError, match="not of Chat Completions"):
        response_items([message])


def test_a_tools_answer_that_is_nested_too_deeply_is_no_error_of_ours() -> None:
    assert tool_error('{"error": ' + DEEP) == ""


@pytest.mark.parametrize("piece", [" ", "<|a|>", " \n", "<|a", "</s> "])
def test_the_end_of_an_answer_is_found_in_linear_time(piece: str) -> None:
    text = piece * 20_000 + "x"
    started_s = time.process_time()
    assert without_end_tokens(text) == text
    assert time.process_time() - started_s < 0.5  # an expression with a star in a star took 20 s


def test_only_the_end_tokens_are_taken_from_an_answer() -> None:
    assert without_end_tokens("a</s> b <|im_end|>\n<|endoftext|>\n") == "a</s> b"
    assert without_end_tokens("a \n") == "a \n"
    assert without_end_tokens("</s>") == ""
