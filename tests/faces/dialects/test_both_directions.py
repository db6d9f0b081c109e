"""A client's request reaches an engine of the same API unchanged, and the engine's answer the client."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gym_faces.dialects import ChatVariant, chat_answer, chat_request, responses_api
from gym_faces.dialects.chat_answer import CHAT
from gym_faces.dialects.responses_api import RESPONSES

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}, "strict": True}}
NAMED = {"type": "function", "function": {"name": "add"}}
CHAT_REQUESTS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "é \"quoted\" \\ text"}]},
    {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]},
    {
        "messages": [
            {"role": "user", "content": "1 + 1?"},
            {"role": "assistant", "content": None, "reasoning_content": "add them", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": "And a picture?"},
        ],
        "tools": [TOOL],
        "tool_choice": NAMED,
        "parallel_tool_calls": False,
    },
    {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
                    {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
                    {"type": "file", "file": {"file_data": "AA", "filename": "a.pdf"}},
                ],
            }
        ]
    },
    {
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0.5,
        "max_tokens": 7,
        "seed": 3,
        "stop": ["END"],
        "top_k": 5,
        "reasoning_effort": "low",
        "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"x": 1}}},
        "tools": [TOOL],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [NAMED]},
        },
    },
]  # fmt: skip


@pytest.mark.parametrize("sent", CHAT_REQUESTS)
def test_a_chat_request_reaches_an_engine_as_it_was(sent: dict[str, Any]) -> None:
    asked = CHAT.read(msgspec.json.encode({"model": "m", **sent}))
    body = chat_request.write_request(asked.call, asked.model, b"{}", ChatVariant())
    assert msgspec.json.decode(body) == {"model": "m", **sent}


def test_a_responses_request_reaches_an_engine_as_it_was() -> None:
    tool = {"type": "function", "name": "add", "parameters": {}, "strict": False}
    sent: dict[str, Any] = {
        "model": "m",
        "instructions": "Be short.",
        "input": [{"role": "user", "content": "Hi"}, {"type": "reasoning", "id": "r", "summary": []}],
        "tools": [tool],
        "text": {"format": {"type": "text"}},
        "top_p": 0.9,
        "min_p": 0.1,
    }
    asked = RESPONSES.read(msgspec.json.encode(sent))
    assert msgspec.json.decode(responses_api.write_request(asked.call, asked.model, b"{}")) == sent


@pytest.mark.parametrize(
    ("message", "finish_reason"),
    [
        ({"content": "2"}, "stop"),
        ({"content": "tw"}, "length"),
        ({"content": None, "tool_calls": [CALL]}, "tool_calls"),
        ({"content": "2", "reasoning_content": "add them", "tool_calls": [CALL]}, "tool_calls"),
    ],
)
def test_a_completion_reaches_a_client_as_it_was(message: dict[str, Any], finish_reason: str) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    body = msgspec.json.encode({"model": "m", "created": 5, "choices": [choice], "usage": usage})
    asked = CHAT.read(b'{"messages":[{"role":"user","content":"1 + 1?"}]}')
    found = msgspec.json.decode(CHAT.answer(chat_answer.response(chat_answer.read_answer(body)), asked))
    (said,) = found["choices"]
    assert {name: said["message"][name] for name in message} == message
    assert (said["finish_reason"], found["model"], found["created"]) == (finish_reason, "m", 5)
    assert {name: found["usage"][name] for name in usage} == usage


def test_a_stream_to_a_client_is_read_as_the_whole_answer() -> None:
    asked = CHAT.read(b'{"messages":[],"stream_options":{"include_usage":true}}')
    message = {"content": "2", "reasoning_content": "add them", "tool_calls": [CALL]}
    answer = {
        "model": "m",
        "created": 5,
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    whole = chat_answer.response(chat_answer.read_answer(msgspec.json.encode(answer)))
    streamed = chat_answer.response(chat_answer.read_stream(b"".join(CHAT.events(whole, asked))))
    assert without_id(CHAT.answer(streamed, asked)) == without_id(CHAT.answer(whole, asked))


def without_id(body: bytes) -> dict[str, Any]:
    return {name: value for name, value in msgspec.json.decode(body).items() if name != "id"}
