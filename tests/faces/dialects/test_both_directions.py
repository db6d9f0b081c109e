"""A client's request reaches an engine of the same API unchanged, and the engine's answer the client."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec
import pytest
from gym_faces.dialects import (
    ChatVariant,
    chat_answer,
    chat_request,
    gemini_engine,
    messages_engine,
    responses_api,
)
from gym_faces.dialects.chat_answer import CHAT
from gym_faces.dialects.gemini_api import GEMINI
from gym_faces.dialects.messages_api import MESSAGES
from gym_faces.dialects.responses_api import RESPONSES
from gym_runtime.adapters import ModelCall
from msgspec import Raw
from runtime.environment.image_samples import png

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


def transcript(seed: int) -> list[dict[str, Any]]:
    """A conversation of texts, calls, and outputs of tools with images."""
    draw = Random(seed)

    def image() -> dict[str, Any]:
        data = b64encode(png(draw.randint(1, 9), draw.randint(1, 9))).decode()
        return {"type": "input_image", "image_url": f"data:image/png;base64,{data}", "detail": "auto"}

    items: list[dict[str, Any]] = []
    for turn in range(draw.randint(1, 4)):
        said = [
            {"type": "input_text", "text": f"é {seed} {turn}"},
            *(image() for _ in range(draw.randint(0, 2))),
        ]
        items.append({"role": "user", "content": said})
        for number in range(draw.randint(0, 2)):
            about = {"call_id": f"c{turn}.{number}", "name": "look"}
            items.append({"type": "function_call", **about, "arguments": f'{{"n":{number}}}'})
        for number in range(sum(one.get("call_id", "").startswith(f"c{turn}.") for one in items)):
            seen = [
                {"type": "input_text", "text": f"ok {number}"},
                *(image() for _ in range(draw.randint(0, 3))),
            ]
            output = seen if len(seen) > 1 else f"ok {number}"
            items.append({"type": "function_call_output", "call_id": f"c{turn}.{number}", "output": output})
        part = {"type": "output_text", "text": f"done {turn}", "annotations": []}
        items.append({"type": "message", "role": "assistant", "status": "completed", "content": [part]})
    return items


def flat(items: Iterable[Any]) -> list[tuple[str, str]]:
    """Each text and image in order, with what it belongs to."""
    found: list[tuple[str, str]] = []
    for raw in items:
        one: dict[str, Any] = msgspec.json.decode(raw) if isinstance(raw, Raw) else raw
        owner = one.get("call_id") or one["role"]
        if one.get("type") == "function_call":
            found.append((owner, one["arguments"]))
            continue
        content = one.get("output", one.get("content"))
        parts = [{"text": content}] if isinstance(content, str) else content
        for part in parts:
            text = part.get("image_url") or part["text"]
            if text.startswith('{"output"'):  # Gemini's form, with an address
                text = msgspec.json.decode(text)["output"]
            found.append((owner, text))
    return found


def by_chat(call: ModelCall) -> ModelCall:
    return CHAT.read(chat_request.write_request(call, "m", b"{}", ChatVariant(tool_images="tool"))).call


def by_messages(call: ModelCall) -> ModelCall:
    return MESSAGES.read(messages_engine.write_request(call, "m", b'{"max_tokens":9}')).call


def by_responses(call: ModelCall) -> ModelCall:
    return RESPONSES.read(responses_api.write_request(call, "m", b"{}")).call


def by_gemini(call: ModelCall) -> ModelCall:
    return GEMINI.read(gemini_engine.write_request(call, b"{}")).call


@pytest.mark.parametrize("through", [by_chat, by_messages, by_responses, by_gemini])
def test_texts_and_images_of_40_transcripts_pass_both_ends(through: Callable[[ModelCall], ModelCall]) -> None:
    """Byte by byte and in order."""
    images = 0
    for seed in range(40):
        items = transcript(seed)
        call = ModelCall(params=Raw(b"{}"), input=[Raw(msgspec.json.encode(one)) for one in items])
        assert flat(through(call).input) == flat(items)
        images += sum(text.startswith("data:") for _, text in flat(items))
    assert images > 100


def test_images_that_are_moved_behind_the_tools_messages_keep_their_order() -> None:
    for seed in range(40):
        items = transcript(seed)
        call = ModelCall(params=Raw(b"{}"), input=[Raw(msgspec.json.encode(one)) for one in items])
        body = chat_request.write_request(call, "m", b"{}", ChatVariant(tool_images="user"))
        moved = flat(CHAT.read(body).call.input)
        shown = [[text for _, text in each if text.startswith("data:")] for each in (moved, flat(items))]
        assert shown[0] == shown[1]
        assert not [owner for owner, text in moved if text.startswith("data:") and owner.startswith("c")]


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
