"""Conversations as a chat engine gets them."""

from __future__ import annotations

from typing import Any

import pytest
from gym_faces.dialects.chat_request import ChatVariant
from models.chat_requests import converted, messages, said, user
from tables import table


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": text}]}


def called(number: int, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": arguments, "id": "x"}


def tool_call(number: int, arguments: str = "{}") -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": arguments}}


GOLDEN_PARAMS = {
    "instructions": "Be brief.",
    "temperature": 0.5,
    "top_p": None,
    "max_output_tokens": 64,
    "parallel_tool_calls": False,
    "tool_choice": {"type": "function", "name": "f"},
    "tools": [
        {
            "type": "function",
            "name": "f",
            "description": "does f",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        }
    ],
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}, "strict": True}},
    "metadata": {
        "extra_body": '{"seed": 7}',
        "chat_template_kwargs": '{"enable_thinking": false}',
        "note": "dropped",
    },
    "store": True,
    "include": ["reasoning.encrypted_content"],
    "truncation": "auto",
    "background": False,
    "stream": False,
}


GOLDEN_INPUT = [
    {"role": "system", "content": "You are a pirate."},
    {"role": "developer", "content": [{"type": "input_text", "text": "Say arr."}]},
    user('hé "there"\n'),
    thought("hm"),
    said("let me ", "see"),
    called(1, '{"a": 1}'),
    called(2),
    {"type": "function_call_output", "call_id": "c1", "output": "one"},
    {"type": "function_call_output", "call_id": "c2", "output": "two"},
    said("done"),
    user([{"type": "input_text", "text": "and this?"}, {"type": "input_image", "image_url": "data:x"}]),
]


GOLDEN_BODY = {
    "model": "m",
    "temperature": 0.5,
    "store": True,
    "max_tokens": 64,
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "does f",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "parallel_tool_calls": False,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": True},
    },
    "reasoning_effort": "low",
    "seed": 7,
    "chat_template_kwargs": {"enable_thinking": False},
    "messages": [
        {"role": "system", "content": "Be brief.\n\nYou are a pirate.\n\nSay arr."},
        {"role": "user", "content": 'hé "there"\n'},
        {
            "role": "assistant",
            "content": "let me see",
            "reasoning_content": "hm",
            "tool_calls": [tool_call(1, '{"a": 1}'), tool_call(2)],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "assistant", "content": "done"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "and this?"},
                {"type": "image_url", "image_url": {"url": "data:x"}},
            ],
        },
    ],
}


def test_golden_conversation() -> None:
    assert converted(GOLDEN_INPUT, GOLDEN_PARAMS) == GOLDEN_BODY


@table(
    ("items", "expected"),
    [
        ([user("hi")], [user("hi")]),
        ([user([{"type": "input_text", "text": "hi"}])], [user("hi")]),
        ([{"type": "message", "role": "user", "content": "hi", "id": "m"}], [user("hi")]),
        (
            [user([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}])],
            [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
        ),
        (
            [user([{"type": "input_image", "image_url": "u", "detail": "low"}])],
            [user([{"type": "image_url", "image_url": {"url": "u", "detail": "low"}}])],
        ),
        (
            [user([{"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}}])],
            [user([{"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}}])],
        ),
        ([{"role": "assistant", "content": "easy"}], [{"role": "assistant", "content": "easy"}]),
        *(
            ([user("hi"), {"role": role, "content": "A"}], [user("hi"), {"role": role, "content": "A"}])
            for role in ("response_1", "response_2", "principle")
        ),
        ([said("a"), said("b")], [{"role": "assistant", "content": "ab"}]),
        ([called(1)], [{"role": "assistant", "content": None, "tool_calls": [tool_call(1)]}]),
        ([thought("hm")], [{"role": "assistant", "content": "", "reasoning_content": "hm"}]),
        (
            [thought("a"), called(1), thought("b"), called(2)],
            [
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "ab",
                    "tool_calls": [tool_call(1), tool_call(2)],
                }
            ],
        ),
        (
            [
                {
                    "type": "function_call_output",
                    "call_id": "c1",
                    "output": [{"type": "input_text", "text": "x"}],
                }
            ],
            [{"role": "tool", "tool_call_id": "c1", "content": "x"}],
        ),
        (
            [user("a"), {"role": "system", "content": "late"}, user("b")],
            [{"role": "system", "content": "late"}, user("a"), user("b")],
        ),
        (
            [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
            [{"role": "assistant", "content": "no"}],
        ),
    ],
)
def test_messages(items: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert messages(items) == expected


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("reasoning_content", {"content": "yes", "reasoning_content": "hm"}),
        ("reasoning", {"content": "yes", "reasoning": "hm"}),
        ("think", {"content": "<think>hm</think>yes"}),
        ("drop", {"content": "yes"}),
    ],
)
def test_earlier_thinking_goes_back_as_the_engine_wants_it(way: Any, expected: dict[str, str]) -> None:
    found = messages([thought("hm"), said("yes")], dialect=ChatVariant(reasoning=way))
    assert found == [{"role": "assistant", **expected}]


def test_thinking_alone_that_is_dropped_leaves_no_message() -> None:
    assert messages([user("a"), thought("hm")], dialect=ChatVariant(reasoning="drop")) == [user("a")]


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "original"}
SHOWN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "high"}}


def output(number: int, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": list(parts)}


def test_images_of_tools_in_their_own_message_or_after_it() -> None:
    text = {"type": "input_text", "text": "ok"}
    items = [user("?"), called(1), called(2), output(1, text, IMAGE), output(2, IMAGE), said("done")]
    plain = {"type": "text", "text": "ok"}
    tool_messages = messages(items)[2:4]
    assert [one["content"] for one in tool_messages] == [[plain, SHOWN], [SHOWN]]
    moved = ChatVariant(tool_images="user")
    one, two, images, last = messages(items, dialect=moved)[2:]
    assert [one["content"], two["content"], last["role"]] == ["ok", "", "assistant"]
    of_call = [{"type": "text", "text": f"Images of the call c{number}:"} for number in (1, 2)]
    assert images == user([of_call[0], SHOWN, of_call[1], SHOWN])
    # The messages so far are the beginning of the longer conversation.
    assert messages(items[:5], dialect=moved) == messages(items, dialect=moved)[:-1]
