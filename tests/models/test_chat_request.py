"""Responses API → Chat Completions, as tables and one golden conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gym_models.wire import chat_request
from gym_models.wire.chat_request import ChatVariant
from gym_runtime.errors import TaskError
from gym_runtime.messages.calls import ModelCall
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw


def converted(
    items: list[dict[str, Any]],
    params: dict[str, Any] | None = None,
    *,
    extra: dict[str, Any] | None = None,
    dialect: ChatVariant | None = None,
    return_tokens: bool = False,
) -> dict[str, Any]:
    call = ModelCall(
        params=Raw(json.dumps(params or {}).encode()),
        input=[Raw(json.dumps(item).encode()) for item in items],
        return_tokens=return_tokens,
    )
    return json.loads(
        chat_request.request(call, "m", json.dumps(extra or {}).encode(), dialect or ChatVariant())
    )


def messages(items: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    return converted(items, **more)["messages"]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def said(*texts: str) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": parts}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": text}]}


def called(number: int, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": arguments, "id": "x"}


def tool_call(number: int, arguments: str = "{}") -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": arguments}}


OFFERED = {"hosted_tools": "optional"}
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"tool_choice": "auto"}, {}),
        ({"tool_choice": "required"}, {}),
        ({"tools": [], "tool_choice": "required", "parallel_tool_calls": False}, {}),
        ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
        ({"include": ["reasoning.encrypted_content"]}, {}),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
        ({"reasoning": {"effort": None}}, {}),
        ({"model": "the row's"}, {}),
        ({"user": "u", "service_tier": "flex"}, {"user": "u", "service_tier": "flex"}),
    ],
)
def test_parameters(params: dict[str, Any], expected: dict[str, Any]) -> None:
    body = converted([user("hi")], params)
    assert body == {"model": "m", **expected, "messages": [user("hi")]}


def test_strict_survives_only_when_true() -> None:
    tools = [{"type": "function", "name": name, "strict": name == "a", "parameters": None} for name in "ab"]
    found = converted([user("hi")], {"tools": tools})["tools"]
    assert [tool["function"] for tool in found] == [{"name": "a", "strict": True}, {"name": "b"}]


def test_allowed_tools() -> None:
    tool = {"type": "function", "name": "f"}
    choice = {"type": "allowed_tools", "mode": "required", "tools": [tool]}
    assert converted([user("hi")], {"tools": [tool], "tool_choice": choice})["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]},
    }


def test_hosted_tools_that_a_harness_offers_are_left_out() -> None:
    function = {"type": "function", "name": "f"}
    hosted = [{"type": "web_search_preview_2025_03_11"}, {"type": "image_generation"}]
    params: dict[str, Any] = {"tools": [hosted[0], function, hosted[1]], "metadata": OFFERED}
    assert [tool["function"]["name"] for tool in converted([user("hi")], params)["tools"]] == ["f"]
    assert "tools" not in converted([user("hi")], {**params, "tools": hosted, "tool_choice": "required"})
    found = chat_request.notes(json.dumps(params).encode())
    assert found.left_out == ("web_search_preview_2025_03_11", "image_generation")
    nothing = {"tools": None, "metadata": None, "include": None}
    assert chat_request.notes(json.dumps(nothing).encode()) == chat_request.Notes()


def test_what_wins_over_what() -> None:
    params = {"temperature": 0.5, "metadata": {"extra_body": '{"top_k": 3}'}}
    body = converted([user("hi")], params, extra={"temperature": 1.0, "top_k": 1, "min_p": 0.1})
    assert (body["temperature"], body["top_k"], body["min_p"]) == (0.5, 3, 0.1)


def test_tokens_and_streams() -> None:
    assert converted([user("hi")], return_tokens=True)["return_token_ids"] is True
    streaming = ChatVariant(stream=True)
    assert converted([user("hi")], dialect=streaming)["stream"] is True
    assert "stream" not in converted([user("hi")], dialect=streaming, return_tokens=True)
    assert "stream" not in converted([user("hi")], {"top_logprobs": 1}, dialect=streaming)


@pytest.mark.parametrize(
    ("items", "params", "reason"),
    [
        ([{"type": "web_search_call", "id": "w"}], {}, "web_search_call"),
        ([{"role": "tool", "content": "x"}], {}, "role 'tool'"),
        ([{"type": "function_call", "call_id": "c"}], {}, "lacks"),
        ([{"type": "function_call_output", "output": "x"}], {}, "lacks its call_id"),
        ([user([{"type": "input_video", "video_url": "v"}])], {}, "input_video"),
        ([user([{"type": "input_image", "file_id": "f"}])], {}, "image_url"),
        ([user([{"type": "input_text"}])], {}, "needs the 'text' of an input_text"),
        ([user([{"type": "input_audio"}])], {}, "needs the 'input_audio'"),
        ([user(5)], {}, "Responses API input"),
        ([], {"tools": [{"type": "web_search"}]}, "of type 'web_search'; switch it off in the agent"),
        ([], {"tools": [{"type": "custom", "name": "p"}], "metadata": OFFERED}, "of type 'custom'"),
        ([], {"previous_response_id": "r"}, "previous_response_id"),
        ([], {"metadata": {"extra_body": "{"}}, "responses_create_params.metadata"),
        ([], {"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "mcp"}}, "mcp"),
    ],
)
def test_what_chat_cannot_carry_is_the_rows_fault(
    items: list[dict[str, Any]], params: dict[str, Any], reason: str
) -> None:
    with pytest.raises(TaskError, match=reason) as caught:
        converted(items, params)
    assert not caught.value.retryable


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_any_text_survives(texts: list[str]) -> None:
    assert messages([user(texts[0]), said(*texts)]) == [
        user(texts[0]),
        {"role": "assistant", "content": "".join(texts)},
    ]
