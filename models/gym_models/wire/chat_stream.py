"""A streamed completion, read to its end and merged into one completion.

Streaming is used for engines that notice a closed connection only while they write: without it llama.cpp
generates to the end. The chunks are not used before the stream has ended.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE

from gym_models.wire.chat_answer import Choice, Completion
from gym_models.wire.native_responses import ForeignAnswer

_DATA = b"data:"
_END = b"[DONE]"


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function = msgspec.field(default_factory=_Function)


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    id: Any = None
    created: float | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


def decode(body: bytes) -> Completion[Choice]:
    """
    Raises:
        ForeignAnswer: the body is not a stream of completion chunks, reports an error, or stops short.
    """
    answer: dict[str, Any] = {}
    choice: dict[str, Any] = {}
    texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
    calls: dict[int, dict[str, Any]] = {}
    for chunk in _chunks(body):
        answer.update(id=chunk.id, created=chunk.created, model=chunk.model)
        if chunk.usage is not None:
            answer["usage"] = chunk.usage
        # The chunk with the usage has no choice.
        for part in chunk.choices[:1]:
            texts["content"].append(part.delta.content or "")
            texts["reasoning_content"].append(part.delta.reasoning_content or part.delta.reasoning or "")
            for call in part.delta.tool_calls or ():
                _add(calls.setdefault(call.index, {"id": None, "name": "", "arguments": []}), call)
            choice["finish_reason"] = part.finish_reason or choice.get("finish_reason")
    # Without one the connection broke: what has come looks like a whole answer.
    if not choice.get("finish_reason"):
        raise ForeignAnswer("the stream stops short")
    choice["message"] = {
        **{name: "".join(parts) for name, parts in texts.items()},
        "tool_calls": [
            {"id": call["id"], "function": {"name": call["name"], "arguments": "".join(call["arguments"])}}
            # Pieces of several calls may come interleaved.
            for _, call in sorted(calls.items())
        ],
    }
    return msgspec.json.decode(msgspec.json.encode({**answer, "choices": [choice]}), type=Completion[Choice])


def _chunks(body: bytes) -> Iterator[_Chunk]:
    """One at a time: a body of nothing but line ends makes no list of millions."""
    for line in io.BytesIO(body):
        data = line.removeprefix(_DATA).strip() if line.startswith(_DATA) else b""
        if not data or data == _END:
            continue
        try:
            chunk = _decode(data)
        except UNREADABLE as error:
            raise ForeignAnswer(str(error)) from error
        if chunk.error is not None:
            raise ForeignAnswer(f"the engine broke off: {chunk.error}")
        yield chunk


def _add(found: dict[str, Any], call: _Call) -> None:
    found["id"] = found["id"] or call.id
    found["name"] = found["name"] or call.function.name or ""
    found["arguments"].append(call.function.arguments or "")
