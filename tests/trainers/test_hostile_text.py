"""What a model writes may fail its rollout, and neither ends a training nor holds it up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gym_runtime.environment.verdict import Reply, make_response
from gym_runtime.errors import TaskError
from gym_runtime.messages.transcripts import encoded, response_items, tool_error
from gym_trainers.hermes import said

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


SHAPES: list[Any] = [
    {"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]},
    {"role": "assistant", "tool_calls": ["add"]},
    {"content": "x"},
    "x",
]


@pytest.mark.parametrize("message", SHAPES)
def test_a_message_of_another_shape_is_an_error_of_its_rollout(message: Any) -> None:
    with pytest.raises(TaskError, match="not of Chat Completions"):
        response_items([message])


def test_a_tools_answer_that_is_nested_too_deeply_is_no_error_of_ours() -> None:
    assert tool_error('{"error": ' + DEEP) == ""
