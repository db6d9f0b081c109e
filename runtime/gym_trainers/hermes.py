"""Model output in the format in which Qwen and Hermes models write tool calls.

    <think>…</think> text <tool_call>{"name": …, "arguments": {…}}</tool_call> …

A trainer's engine gives tokens, and no program between it and us parses them. Source: the chat templates of
Qwen 2.5, Qwen 3 and Hermes 2 Pro; vLLM's and verl's parser ``hermes`` for what is not well-formed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import split_thought
from msgspec import Raw


class Call(NamedTuple):
    """A tool call; the arguments are JSON text, which the environment checks."""

    name: str
    arguments: str


class Said(NamedTuple):
    """An answer in its parts."""

    text: str
    calls: tuple[Call, ...] = ()
    thought: str = ""


class _Call(msgspec.Struct):
    name: str
    arguments: Raw = Raw(b"{}")


_decode_call = msgspec.json.Decoder(_Call).decode
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


def said(text: str, *, tools: bool) -> Said:
    """The parts of an answer. If one call is not JSON with a name, there are no calls and all is text.

    Args:
        tools: the model was offered tools; otherwise the tags are text.

    >>> call = '<tool_call>{"name": "add", "arguments": {"n": 1}}</tool_call>'
    >>> said("<think>hm</think>I add." + call, tools=True)
    Said(text='I add.', calls=(Call(name='add', arguments='{"n": 1}'),), thought='hm')
    >>> said("<tool_call>oops</tool_call>", tools=True).text
    '<tool_call>oops</tool_call>'
    """
    thought, text = split_thought(text)
    if tools and (written := _CALL.findall(text)):
        try:
            calls = [_decode_call(one.strip()) for one in written]
        except UNREADABLE:
            return Said(text, (), thought)
        before = text.partition("<tool_call>")[0].strip()
        return Said(before, tuple(Call(one.name, bytes(one.arguments).decode()) for one in calls), thought)
    return Said(text, (), thought)


def tools_prompt(tools: Iterable[Mapping[str, Any]]) -> str:
    """A system message about tools in this format, for trainers whose chat templates are given none.

    Args:
        tools: function tools, as the Responses API has them.
    """
    lines = "\n".join(msgspec.json.encode(tool).decode() for tool in tools)
    form = '<tool_call>{"name": NAME, "arguments": {…}}</tool_call>'
    return f"You can call these functions:\n{lines}\nTo call one, write {form}. Its output comes next."
