"""What the stub engine says, byte for byte as the real ones do, in the Responses and the Chat dialect.

A request with tools whose conversation does not end in a tool's output gets one call of the first tool,
with arguments made from its schema; every other request gets a message.
"""

from __future__ import annotations

import itertools
import os
import time
from functools import lru_cache
from typing import Any

import msgspec
from gym_runtime.environment.tools import example_call
from msgspec import Raw

DONE = "done"
_RUN = os.urandom(6).hex()
_NULL = Raw(b"null")  # msgspec takes only null for Raw | None
_number = itertools.count(1)
_encode = msgspec.json.Encoder().encode


class _Entry(msgspec.Struct, frozen=True):
    type: str = "message"
    role: str = ""


class Call(msgspec.Struct, frozen=True):
    """A request body in either dialect, as far as the stub reads it."""

    model: str
    input: str | list[_Entry] | None = None
    messages: list[_Entry] | None = None
    tools: list[Raw] | None = None
    tool_choice: Raw = Raw(b'"auto"')
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    instructions: Raw = _NULL
    metadata: Raw = _NULL
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    return_token_ids: bool = False
    logprobs: bool = False

    @property
    def conversation(self) -> list[_Entry]:
        if isinstance(self.input, str):
            return [_Entry(role="user")]
        return self.input or self.messages or []

    @property
    def wants_tool(self) -> bool:
        """Whether the answer is to be a tool call."""
        if not self.tools or bytes(self.tool_choice) == b'"none"':
            return False
        last = self.conversation[-1] if self.conversation else _Entry()
        return last.type != "function_call_output" and last.role != "tool"


decode_call = msgspec.json.Decoder(Call).decode


def _identity() -> str:
    return f"{_RUN}{next(_number):08x}"


def responses_answer(call: Call, size_bytes: int, text: str = DONE) -> bytes:
    """A body of ``POST /responses``."""
    identity = _identity()
    if call.wants_tool and call.tools:
        name, arguments = example_call(bytes(call.tools[0]))
        item: dict[str, Any] = {
            "id": f"fc_{identity}",
            "type": "function_call",
            "status": "completed",
            "arguments": arguments,
            "call_id": f"call_{identity}",
            "name": name,
        }
        written = len(arguments)
    else:
        part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
        item = {
            "id": f"msg_{identity}",
            "type": "message",
            "status": "completed",
            "content": [part],
            "role": "assistant",
        }
        written = len(text)
    tokens_in, tokens_out = 1 + size_bytes // 4, 1 + written // 4
    return _encode(
        {
            "id": f"resp_{identity}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "completed",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": call.instructions,
            "max_output_tokens": call.max_output_tokens,
            "max_tool_calls": None,
            "model": call.model,
            "output": [item],
            "parallel_tool_calls": call.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": True,
            "temperature": 1.0 if call.temperature is None else call.temperature,
            "text": {"format": {"type": "text"}, "verbosity": "medium"},
            "tool_choice": call.tool_choice,
            "tools": call.tools or [],
            "top_logprobs": 0,
            "top_p": 1.0 if call.top_p is None else call.top_p,
            "truncation": "disabled",
            "usage": {
                "input_tokens": tokens_in,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": tokens_out,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": tokens_in + tokens_out,
            },
            "user": None,
            "metadata": {} if bytes(call.metadata) == b"null" else call.metadata,
        }
    )


def chat_answer(call: Call, size_bytes: int, text: str = DONE) -> bytes:
    """A body of ``POST /chat/completions``; with ``return_token_ids`` as vLLM extends it."""
    identity = _identity()
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
    if call.wants_tool and call.tools:
        name, arguments = example_call(bytes(call.tools[0]))
        function = {"name": name, "arguments": arguments}
        message["tool_calls"] = [{"id": f"call_{identity}", "type": "function", "function": function}]
        finish, written = "tool_calls", len(arguments)
    else:
        message["content"] = text
        finish, written = "stop", len(text)
    tokens_in, tokens_out = 1 + size_bytes // 4, 1 + written // 4
    choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{identity}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": call.model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        },
        "service_tier": "default",
        "system_fingerprint": "fp_stub",
    }
    if call.return_token_ids:
        answer["prompt_token_ids"] = _ids(0, tokens_in)
        # Each prompt begins with all tokens before it, as the conversations of real engines do.
        choice["token_ids"] = _ids(tokens_in, tokens_out)
    if call.return_token_ids or call.logprobs:
        choice["logprobs"] = _logprobs(tokens_in, tokens_out)
    return _encode(answer)


@lru_cache(maxsize=64)
def _ids(first: int, count: int) -> Raw:
    return Raw(_encode(list(range(first, first + count))))


@lru_cache(maxsize=64)
def _logprobs(first: int, count: int) -> Raw:
    entries: list[dict[str, Any]] = [
        {"token": f"token_id:{one}", "logprob": -0.25, "bytes": None, "top_logprobs": []}
        for one in range(first, first + count)
    ]
    return Raw(_encode({"content": entries}))


def models_answer(models: tuple[str, ...]) -> bytes:
    """A body of ``GET /models``."""
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "stub"} for name in models]
    return _encode({"object": "list", "data": data})


def error_answer(message: str, kind: str, *, code: str | None = None, param: str | None = None) -> bytes:
    """The body of any error."""
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})
