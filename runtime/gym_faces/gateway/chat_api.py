"""Chat Completions: the model's answer as a completion or as its chunks.

Thinking is given as ``reasoning_content``, as vLLM and others do. Source: OpenAI's API reference, "The chat
completion object" and "The chat completion chunk object".
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from gym_runtime.errors import ModelRefused
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

from gym_faces.gateway import openai_errors
from gym_faces.gateway.chat_api_request import read
from gym_faces.gateway.dialect import ApiDialect, Asked, Problem, event
from gym_faces.gateway.dialect import encode as _encode

_DONE = b"data: [DONE]\n\n"


class _Said:
    """A response's content in this dialect."""

    def __init__(self, raw: Raw, asked: Asked) -> None:
        response = decode_response(raw)
        self.thought, self.text, self.refusal = "", "", ""
        self.calls: list[FunctionCall] = []
        for one in decode_items(response.output):
            match one:
                case Reasoning():
                    self.thought += one.text
                case Message():
                    self.text += one.text
                    self.refusal += "".join(part.refusal or "" for part in one.parts)
                case FunctionCall():
                    self.calls.append(one)
                case _:
                    raise ModelRefused(f"Chat Completions cannot carry the model's {type(one).__name__}")
        self.finish_reason = _finish_reason(response, bool(self.calls))
        self.usage = _usage(response.usage or Usage())
        self.head = {
            "id": f"chatcmpl-{response.id.removeprefix('resp_')}",
            "created": int(response.created_at or time.time()),
            "model": response.model or asked.model,
        }

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            # As OpenAI has it: null beside calls or a refusal, else a text, if an empty one.
            "content": self.text or (None if self.calls or self.refusal else ""),
            "refusal": self.refusal or None,
        }
        if self.thought:
            message["reasoning_content"] = self.thought
        if self.calls:
            message["tool_calls"] = [_call(call) for call in self.calls]
        return message


def answer(raw: Raw, asked: Asked) -> bytes:
    """A completion."""
    said = _Said(raw, asked)
    choice = {"index": 0, "message": said.message, "logprobs": None, "finish_reason": said.finish_reason}
    return _encode({**said.head, "object": "chat.completion", "choices": [choice], "usage": said.usage})


def events(raw: Raw, asked: Asked) -> Iterator[bytes]:
    """Its chunks; the last ones have the finish reason and, if requested, the usage."""
    said = _Said(raw, asked)
    head: dict[str, Any] = {**said.head, "object": "chat.completion.chunk"}
    # Then each chunk has the field, which is null before the last one.
    if asked.include_usage:
        head["usage"] = None

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return event({**head, "choices": [choice]})

    # OpenAI's first chunk has the role and an empty text.
    yield chunk({"role": "assistant", "content": "", "refusal": None})
    if said.thought:
        yield chunk({"reasoning_content": said.thought})
    if said.text:
        yield chunk({"content": said.text})
    if said.refusal:
        yield chunk({"refusal": said.refusal})
    for index, call in enumerate(said.calls):
        begun = _call(call)
        begun["function"]["arguments"] = ""
        yield chunk({"tool_calls": [{"index": index, **begun}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": call.arguments}}]})
    yield chunk({}, said.finish_reason)
    if asked.include_usage:
        yield event({**head, "choices": [], "usage": said.usage})
    yield _DONE


def error_event(problem: Problem) -> bytes:
    """An error in a stream, which then ends."""
    return event(openai_errors.error(problem)[1])


def _call(call: FunctionCall) -> dict[str, Any]:
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _finish_reason(response: Response, calls: bool) -> str:
    reason = response.incomplete_details.reason if response.incomplete_details else None
    if reason == "content_filter":
        return "content_filter"
    if reason is not None or response.status == "incomplete":
        return "length"
    return "tool_calls" if calls else "stop"


def _usage(usage: Usage) -> dict[str, Any]:
    read_details, written = usage.input_tokens_details, usage.output_tokens_details
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": read_details.cached_tokens if read_details else 0},
        "completion_tokens_details": {"reasoning_tokens": written.reasoning_tokens if written else 0},
    }


CHAT = ApiDialect(
    name="chat",
    path="/v1/chat/completions",
    read=read,
    answer=answer,
    events=events,
    error=openai_errors.error,
    error_event=error_event,
)
