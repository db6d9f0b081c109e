"""Chat Completions → Responses API: one completion becomes a response object.

Output order: reasoning, message, function calls. Thinking is found in ``reasoning_content``, in
``reasoning``, or between ``<think>`` tags at the start of the text. An answer with neither thinking nor calls
has a message, even if it is empty. ``finish_reason: length`` makes the response ``incomplete``; ``abort`` and
``error`` are failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec
from gym_runtime.errors import UNREADABLE, ModelUnavailable
from gym_runtime.messages import IncompleteDetails, InputTokensDetails, OutputTokensDetails, Response, Usage
from msgspec import Raw

from gym_models.wire import chat_logprobs, pieces
from gym_models.wire.native_responses import ForeignAnswer
from gym_models.wire.pieces import decode_text, encode, is_null, is_string

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_BROKEN_OFF = ("abort", "error")
_OPEN, _CLOSE = "<think>", "</think>"


class _Function(msgspec.Struct):
    # Raw: what only passes through keeps its bytes.
    name: Raw = Raw()
    arguments: Raw = Raw()


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    content: Raw = Raw()
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: Raw = Raw()
    tool_calls: list[_Call] | None = None


class Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


AnyChoice = TypeVar("AnyChoice", bound=Choice, covariant=True)


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class Completion(msgspec.Struct, Generic[AnyChoice]):
    """A body of ``/chat/completions``, as far as a response needs it."""

    choices: Sequence[AnyChoice]
    id: Any = None
    created: float | None = None
    model: str | None = None
    usage: _Usage | None = None


AnyCompletion = TypeVar("AnyCompletion", bound=Completion[Choice])


class _Part(msgspec.Struct):
    text: str = ""


_decode = msgspec.json.Decoder(Completion[Choice]).decode
_decode_parts = msgspec.json.Decoder(list[_Part]).decode


def decode(body: bytes) -> Completion[Choice]:
    """
    Raises:
        ForeignAnswer: the body holds no completion.
    """
    return checked(_decode, body)


def checked(decode: Callable[[bytes], AnyCompletion], body: bytes) -> AnyCompletion:
    """A body, decoded.

    Raises:
        ForeignAnswer: the body holds no completion.
    """
    try:
        completion = decode(body)
    except UNREADABLE as error:
        raise ForeignAnswer(str(error)) from error
    if not completion.choices:
        raise ForeignAnswer("no 'choices'")
    return completion


def response(
    completion: Completion[Choice],
    repeated: Mapping[str, Any] = MappingProxyType({}),
    logprobs: bytes = chat_logprobs.NONE,
) -> Raw:
    """The response object that holds the first choice of a completion.

    ``repeated`` is the result of `responses.echo`, ``logprobs`` that of `chat_logprobs.of`.

    Raises:
        ModelUnavailable: the engine broke the generation off.
    """
    choice = completion.choices[0]
    if choice.finish_reason in _BROKEN_OFF:
        raise ModelUnavailable(
            f"the engine broke the answer off (finish_reason '{choice.finish_reason}')", stage="model"
        )
    identity = pieces.identity()
    reason = _INCOMPLETE.get(choice.finish_reason or "")
    return Raw(
        encode(
            Response(
                id=f"resp_{identity}",
                created_at=completion.created or float(int(time.time())),
                model=completion.model or "",
                output=_output(choice.message, identity, reason is not None, logprobs),
                status="incomplete" if reason else "completed",
                incomplete_details=IncompleteDetails(reason=reason) if reason else None,
                usage=_usage(completion.usage),
                **repeated,
            )
        )
    )


def _output(message: _Message, identity: str, cut: bool, logprobs: bytes) -> list[Raw]:
    thought, text = _thought_and_text(message)
    output: list[Raw] = []
    if thought:
        output.append(
            Raw(
                # Put together as bytes: only the parts that are new are encoded.
                b'{"id":"rs_%b","summary":[{"text":%b,"type":"summary_text"}],"type":"reasoning"}'
                % (identity.encode(), encode(thought))
            )
        )
    calls = message.tool_calls or []
    if bytes(text) != b'""' or not (thought or calls):
        status = b"incomplete" if cut and not calls else b"completed"
        output.append(
            Raw(
                b'{"id":"msg_%b","content":[{"annotations":[],"text":%b,"type":"output_text","logprobs":%b}],'
                b'"role":"assistant","status":"%b","type":"message"}'
                % (identity.encode(), text, logprobs, status)
            )
        )
    for number, call in enumerate(calls):
        call_id = encode(call.id or f"call_{identity}{number}")
        output.append(
            Raw(
                b'{"arguments":%b,"call_id":%b,"name":%b,"type":"function_call","id":%b,"status":"completed"}'
                % (_arguments(call.function.arguments), call_id, call.function.name or b'""', call_id)
            )
        )
    return output


def _thought_and_text(message: _Message) -> tuple[str, bytes | Raw]:
    """The thinking, and the text as JSON; the text is decoded only where it may hold tags."""
    content: bytes | Raw = message.content
    if is_null(content):
        content = b'""' if is_null(message.refusal) else message.refusal
    elif not is_string(content):
        content = encode("".join(part.text for part in _decode_parts(content)))
    thought = message.reasoning_content or message.reasoning or ""
    # A look at the bytes first: decoding a long text to find no tag would cost more.
    if not thought and b"think" in bytes(content):
        thought, text = split_thought(decode_text(content))
        content = encode(text)
    return thought, content


def split_thought(text: str) -> tuple[str, str]:
    """Split leading thinking from the rest; the opening tag may have been part of the prompt.

    >>> split_thought("<think>hm</think>yes"), split_thought("hm</think>yes"), split_thought("yes")
    (('hm', 'yes'), ('hm', 'yes'), ('', 'yes'))
    """
    before, found, rest = text.partition(_OPEN)
    # A tag in the middle of a text is a part of it.
    if found and before.strip():
        return "", text
    thought, closed, answer = (rest if found else text).partition(_CLOSE)
    if not found and not closed:
        return "", text
    return thought.strip(), answer.lstrip() if closed else ""


def _arguments(raw: Raw) -> bytes | Raw:
    """Arguments are a string of JSON; some engines give the object itself."""
    if is_null(raw):
        return b'"{}"'
    return raw if is_string(raw) else encode(bytes(raw).decode())


def _usage(usage: _Usage | None) -> Usage | None:
    if usage is None:
        return None
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=(prompt and prompt.cached_tokens) or 0),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(
            reasoning_tokens=(completion and completion.reasoning_tokens) or 0
        ),
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
    )
