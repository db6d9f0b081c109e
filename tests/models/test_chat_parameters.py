"""Parameters and tools as a chat engine gets them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gym_faces.dialects import chat_request
from gym_faces.dialects.chat_request import ChatVariant
from gym_runtime.errors import TaskError
from hypothesis import given
from hypothesis import strategies as st
from models.chat_requests import converted, messages, said, user
from tables import table

OFFERED = {"hosted_tools": "optional"}


@table(
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


@table(
    ("items", "params", "reason"),
    [
        ([{"type": "web_search_call", "id": "w"}], {}, "web_search_call"),
        ([{"role": "tool", "content": "x"}], {}, "role 'tool'"),
        ([{"type": "function_call", "call_id": "c"}], {}, "lacks"),
        ([{"type": "function_call_output", "output": "x"}], {}, "lacks its call_id"),
        ([user([{"type": "input_video"}])], {}, "needs the .video_url. of an input_video"),
        ([user([{"type": "input_smell"}])], {}, "input_smell"),
        ([user([{"type": "input_image", "file_id": "f"}])], {}, "image_url"),
        ([user([{"type": "input_text"}])], {}, "needs the 'text' of an input_text"),
        ([user([{"type": "input_audio"}])], {}, "needs the 'input_audio'"),
        *(
            (
                [{"role": role, "content": [{"type": "input_image", "image_url": "u"}]}],
                {},
                "'text' of an input_image",
            )
            for role in ("system", "developer", "assistant")
        ),
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
