"""What the model said comes back from a client as the same conversation, in every dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gym_faces.dialects.chat_answer import CHAT
from gym_faces.dialects.dialect import ApiDialect
from gym_faces.dialects.gemini_api import GEMINI
from gym_faces.dialects.messages_api import MESSAGES
from gym_faces.dialects.responses_api import RESPONSES
from gym_faces.recordings.canonical import fold
from gym_runtime.messages.calls import ModelCall
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

USER = {"role": "user", "content": "go"}

texts = st.text(max_size=8)
objects = st.dictionaries(
    texts, st.integers(-(10**6), 10**6) | texts | st.lists(texts, max_size=2), max_size=3
)
messages = texts.map(
    lambda text: {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
)
thoughts = texts.map(
    lambda text: {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text}]}
)
calls = st.builds(
    lambda name, arguments, call_id: {
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    },
    texts,
    objects.map(json.dumps) | st.sampled_from(["", '{"a": 1.0}']),
    texts,
)
outputs = st.lists(messages | thoughts | calls, max_size=5)


def chat_client(answer: Any) -> dict[str, Any]:
    message = answer["choices"][0]["message"]
    return {"model": "m", "messages": [USER, message, USER]}


def messages_client(answer: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": answer["content"]}
    return {"model": "m", "max_tokens": 1, "messages": [USER, said, USER]}


def responses_client(answer: Any) -> dict[str, Any]:
    return {"model": "m", "input": [USER, *answer["output"], USER]}


def gemini_client(answer: Any) -> dict[str, Any]:
    user = {"role": "user", "parts": [{"text": "go"}]}
    said = [answer["candidates"][0]["content"]] if "candidates" in answer else []
    return {"contents": [user, *said, user]}


@pytest.mark.parametrize(
    ("dialect", "client"),
    [
        (CHAT, chat_client),
        (MESSAGES, messages_client),
        (RESPONSES, responses_client),
        (GEMINI, gemini_client),
    ],
    ids=["chat", "messages", "responses", "gemini"],
)
@settings(deadline=None)
@given(output=outputs)
@pytest.mark.slow
def test_what_was_said_comes_back_as_the_same(dialect: ApiDialect, client: Any, output: list[Any]) -> None:
    asked = dialect.read(
        json.dumps(client({"choices": [{"message": USER}], "content": "x", "output": []})).encode()
    )
    answer = dialect.answer(Raw(json.dumps({"id": "resp_1", "output": output}).encode()), asked)
    back = dialect.read(json.dumps(client(json.loads(answer))).encode()).call
    assert isinstance(back, ModelCall)
    said = [Raw(json.dumps(item).encode()) for item in (USER, *output, USER)]
    assert fold(back.input) == fold(said)


@settings(deadline=None)
@given(output=outputs)
def test_a_stream_says_what_the_answer_says(output: list[Any]) -> None:
    """Put together as the API's reference says; what the real clients make of it, their tests show."""
    raw = Raw(json.dumps({"id": "resp_1", "created_at": 1, "output": output}).encode())
    body = {"model": "m", "max_tokens": 1, "messages": [USER]}
    asked = MESSAGES.read(json.dumps(body).encode())
    blocks: dict[int, dict[str, Any]] = {}
    for event in MESSAGES.events(raw, asked):
        data = json.loads(event.partition(b"data: ")[2])
        if data["type"] == "content_block_start":
            blocks[data["index"]] = {**data["content_block"], "json": ""}
        elif data["type"] == "content_block_delta":
            for name, piece in data["delta"].items():
                field = "json" if name == "partial_json" else name
                if name != "type":
                    blocks[data["index"]][field] += piece
    for block in blocks.values():
        if text := block.pop("json"):
            block["input"] = json.loads(text)
    assert [blocks[index] for index in sorted(blocks)] == json.loads(MESSAGES.answer(raw, asked))["content"]
