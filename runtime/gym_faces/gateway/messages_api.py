"""Anthropic's Messages API: the model's answer as a message or as its events.

Thinking becomes a ``thinking`` block without a signature, a call a ``tool_use`` block whose input is an
object. Arguments that are not a JSON object become ``{"arguments": TEXT}``, so that the tool reports an error
and the model reads it. Source: Anthropic's API reference, "Create a Message" and "Streaming messages".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import msgspec
from gym_runtime.errors import UNREADABLE, ModelRefused
from gym_runtime.messages.responses import (
    FunctionCall,
    Message,
    Reasoning,
    Response,
    Usage,
    decode_items,
    decode_response,
)
from msgspec import Raw

from gym_faces.gateway.dialect import ApiDialect, Asked, Kind, Problem, event
from gym_faces.gateway.dialect import encode as _encode
from gym_faces.gateway.messages_api_request import read

_ERRORS: dict[Kind, tuple[int, str]] = {
    "invalid": (400, "invalid_request_error"),
    "unauthorized": (401, "authentication_error"),
    "forbidden": (403, "permission_error"),
    "slow": (408, "invalid_request_error"),
    "media_type": (415, "invalid_request_error"),
    "too_large": (413, "request_too_large"),
    "not_found": (404, "not_found_error"),
    "rate_limit": (429, "rate_limit_error"),
    "overloaded": (529, "overloaded_error"),
    "timeout": (504, "timeout_error"),
    "internal": (500, "api_error"),
}
_DELTAS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}


def answer(raw: Raw, asked: Asked) -> bytes:
    """A message."""
    return _encode(_message(raw, asked))


def events(raw: Raw, asked: Asked) -> Iterator[bytes]:
    """The same as a stream: a start event, each block in pieces, and an end event."""
    message = _message(raw, asked)
    blocks: list[dict[str, Any]] = message["content"]

    def say(name: str, /, **more: Any) -> bytes:
        return event({"type": name, **more}, name)

    nothing: dict[str, Any] = {"content": [], "stop_reason": None}
    begun = {**message, **nothing, "usage": {**message["usage"], "output_tokens": 1}}
    yield say("message_start", message=begun)
    yield say("ping")
    for index, block in enumerate(blocks):
        if block["type"] == "tool_use":
            field, empty = "input", dict[str, Any]()
            delta = {"type": "input_json_delta", "partial_json": _encode(block["input"]).decode()}
        else:
            kind, field = _DELTAS[block["type"]]
            empty, delta = "", {"type": kind, field: block[field]}
        yield say("content_block_start", index=index, content_block={**block, field: empty})
        yield say("content_block_delta", index=index, delta=delta)
        if block["type"] == "thinking":
            # Anthropic's streams end a block of thinking with its signature; these blocks have no signature.
            yield say("content_block_delta", index=index, delta={"type": "signature_delta", "signature": ""})
        yield say("content_block_stop", index=index)
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield say("message_delta", delta=end, usage={"output_tokens": message["usage"]["output_tokens"]})
    yield say("message_stop")


def error(problem: Problem) -> tuple[int, bytes]:
    """Status and body of an error."""
    return _ERRORS[problem.kind][0], _encode(_error(problem))


def error_event(problem: Problem) -> bytes:
    """An error in a stream, which then ends."""
    return event(_error(problem), "error")


def _error(problem: Problem) -> dict[str, Any]:
    return {"type": "error", "error": {"type": _ERRORS[problem.kind][1], "message": problem.message}}


def _message(raw: Raw, asked: Asked) -> dict[str, Any]:
    response = decode_response(raw)
    blocks: list[dict[str, Any]] = []
    for one in decode_items(response.output):
        match one:
            case Reasoning():
                if one.text:
                    blocks.append({"type": "thinking", "thinking": one.text, "signature": ""})
            case Message():
                if text := one.text or _refusal(one):
                    blocks.append({"type": "text", "text": text})
            case FunctionCall():
                called = _arguments(one.arguments)
                blocks.append({"type": "tool_use", "id": one.call_id, "name": one.name, "input": called})
            case _:
                raise ModelRefused(f"the Messages API cannot carry the model's {type(one).__name__}")
    return {
        "id": f"msg_{response.id.removeprefix('resp_') or uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": response.model or asked.model,
        "content": blocks,
        "stop_reason": _stop_reason(response, blocks),
        "stop_sequence": None,
        "usage": _usage(response.usage or Usage()),
    }


def _refusal(message: Message) -> str:
    return "".join(part.refusal or "" for part in message.parts)


def _arguments(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except UNREADABLE:
        return {"arguments": text}


def _stop_reason(response: Response, blocks: list[dict[str, Any]]) -> str:
    reason = response.incomplete_details.reason if response.incomplete_details else None
    if reason == "content_filter":
        return "refusal"
    if reason is not None or response.status == "incomplete":
        return "max_tokens"
    return "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"


def _usage(usage: Usage) -> dict[str, Any]:
    cached = usage.input_tokens_details.cached_tokens if usage.input_tokens_details else 0
    return {
        # Anthropic counts cached tokens apart, OpenAI among the input.
        "input_tokens": usage.input_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output_tokens,
    }


MESSAGES = ApiDialect(
    name="messages",
    path="/v1/messages",
    read=read,
    answer=answer,
    events=events,
    error=error,
    error_event=error_event,
)
