"""Chat Completions and the Responses API: completions, whole and streamed, in both directions.

An engine's completion becomes a response. Output order: reasoning, message, function calls. Thinking is found
in ``reasoning_content``, in ``reasoning``, or between ``<think>`` tags at the start of the text. An answer
with neither thinking nor calls has a message, even if it is empty. ``finish_reason: length`` makes the
response ``incomplete``; ``abort``, ``error`` and the like are failures, as is an error beside an answer. A
stream is read to its end and merged.

A response becomes a client's completion or its chunks; thinking is given as ``reasoning_content``, as vLLM
and others do. Source: OpenAI's API reference, "The chat completion object" and "The chat completion chunk
object".
"""

from __future__ import annotations

import io
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec
from gym_runtime.errors import UNREADABLE, ModelRefused, ModelUnavailable
from gym_runtime.messages import (
    FunctionCall,
    IncompleteDetails,
    InputTokensDetails,
    Message,
    OutputTokensDetails,
    Reasoning,
    Response,
    Usage,
    decode_items,
    decode_response,
    split_thought,
)
from msgspec import Raw

from gym_faces.dialects.chat_request import read_request
from gym_faces.dialects.dialect import ApiDialect, Asked, ForeignAnswer, check_text, event, openai_error
from gym_faces.dialects.pieces import decode_text, encode, finite, identity, is_null, is_string

_INCOMPLETE = {
    "length": "max_output_tokens",
    "model_length": "max_output_tokens",  # Mistral: the context is full
    "content_filter": "content_filter",
    "function_call_filter": "content_filter",  # Gemini, where it could not read a call
}
# DeepSeek's, when it has no room, and those of TensorRT-LLM.
_BROKEN_OFF = ("abort", "error", "insufficient_system_resource", "cancelled", "timeout")
_DATA, _END = b"data:", b"[DONE]"
_DONE = b"data: [DONE]\n\n"


# -- an engine's completion becomes a response ----------------------------------------------------------


class _Function(msgspec.Struct):
    # Raw: what only passes through keeps its bytes.
    name: Raw = Raw()
    arguments: Raw = Raw()


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None
    extra_content: Raw = Raw()


class _Answered(msgspec.Struct):
    content: Raw = Raw()
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: Raw = Raw()
    tool_calls: list[_Call] | None = None


class Choice(msgspec.Struct):
    message: _Answered | None = None
    finish_reason: str | None = None
    error: Any = None


AnyChoice = TypeVar("AnyChoice", bound=Choice, covariant=True)


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _EngineUsage(msgspec.Struct):
    # Some engines write null, 5.0 or -1: no reason to lose the answer.
    prompt_tokens: float | None = 0
    completion_tokens: float | None = 0
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class Completion(msgspec.Struct, Generic[AnyChoice]):
    """A body of ``/chat/completions``, as far as a response needs it."""

    choices: Sequence[AnyChoice]
    id: Any = None
    created: Any = None
    model: str | None = None
    usage: _EngineUsage | None = None
    error: Any = None


AnyCompletion = TypeVar("AnyCompletion", bound=Completion[Choice])


class _Part(msgspec.Struct):
    text: str = ""


LONGEST_CONTEXT = 2**40
"""In tokens: no engine has one that is nearly as long."""
_decode = msgspec.json.Decoder(Completion[Choice]).decode
_decode_parts = msgspec.json.Decoder(list[_Part]).decode


def read_answer(body: bytes) -> Completion[Choice]:
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
        check_text(body)
        completion = decode(body)
    except UNREADABLE as error:
        raise ForeignAnswer(str(error)) from error
    if not completion.choices:
        raise ForeignAnswer("no 'choices'")
    # A router's: what came until then looks like an answer.
    if error := completion.error or completion.choices[0].error:
        raise ForeignAnswer(f"the engine broke off: {error}")
    # Gemini leaves it out where it filters.
    if completion.choices[0].message is None and not _incomplete(completion.choices[0]):
        raise ForeignAnswer("no 'message'")
    return completion


def _incomplete(choice: Choice) -> str | None:
    # Gemini's have details behind a colon.
    return _INCOMPLETE.get((choice.finish_reason or "").partition(":")[0])


def response(
    completion: Completion[Choice],
    repeated: Mapping[str, Any] = MappingProxyType({}),
    logprobs: bytes = b"null",
) -> Raw:
    """The response object that holds the first choice of a completion.

    ``repeated`` is the result of `responses_api.echo`, ``logprobs`` that of `chat_tokens.shown_logprobs`.

    Raises:
        ModelUnavailable: the engine broke the generation off.
    """
    choice = completion.choices[0]
    if choice.finish_reason in _BROKEN_OFF:
        raise ModelUnavailable(
            f"the engine broke the answer off (finish_reason '{choice.finish_reason}')", stage="model"
        )
    made, message, created = identity(), choice.message or _Answered(), completion.created
    if not isinstance(created, int | float) or not 0 < created < 1e12:
        created = float(int(time.time()))
    reason = _incomplete(choice)
    found = Response(
        id=f"resp_{made}",
        created_at=created,
        model=completion.model or "",
        output=[Raw(item) for item in _items(message, made, reason is not None, logprobs)],
        status="incomplete" if reason else "completed",
        incomplete_details=IncompleteDetails(reason=reason) if reason else None,
        usage=_read_usage(completion.usage),
        **repeated,
    )
    return Raw(encode(found))


def _items(message: _Answered, made: str, cut: bool, logprobs: bytes) -> Iterator[bytes]:
    """Put together as bytes: only the parts that are new are encoded."""
    thought, text = _thought_and_text(message)
    calls = message.tool_calls or []
    if thought:
        yield (
            b'{"id":"rs_%b","summary":[{"text":%b,"type":"summary_text"}],"type":"reasoning"}'
            % (made.encode(), encode(thought))
        )
    if bytes(text) != b'""' or not (thought or calls):
        status = b"incomplete" if cut and not calls else b"completed"
        yield (
            b'{"id":"msg_%b","content":[{"annotations":[],"text":%b,"type":"output_text","logprobs":%b}],'
            b'"role":"assistant","status":"%b","type":"message"}' % (made.encode(), text, logprobs, status)
        )
    for number, call in enumerate(calls):
        call_id = encode(call.id or f"call_{made}{number}")
        # Gemini's signature of the call, which must come back with it.
        more = bytes(call.extra_content)
        signed = b"" if is_null(more) else b',"extra_content":%b' % finite(more)
        yield (
            b'{"arguments":%b,"call_id":%b,"name":%b,"type":"function_call","id":%b,"status":"completed"%b}'
            % (_arguments(call.function.arguments), call_id, call.function.name or b'""', call_id, signed)
        )


def _thought_and_text(message: _Answered) -> tuple[str, bytes | Raw]:
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


def _arguments(raw: Raw) -> bytes | Raw:
    """Arguments are a string of JSON; some engines give the object itself."""
    if is_null(raw):
        return b'"{}"'
    return raw if is_string(raw) else encode(bytes(raw).decode())


def _read_usage(usage: _EngineUsage | None) -> Usage | None:
    if usage is None:
        return None
    prompt = usage.prompt_tokens_details or _Details()
    completion = usage.completion_tokens_details or _Details()
    read, written = _count(usage.prompt_tokens), _count(usage.completion_tokens)
    return Usage(
        input_tokens=read,
        input_tokens_details=InputTokensDetails(cached_tokens=_count(prompt.cached_tokens)),
        output_tokens=written,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=_count(completion.reasoning_tokens)),
        total_tokens=read + written,
    )


def _count(said: float | None) -> int:
    """A count of tokens; 0 if the engine's number cannot be a count, such as -1."""
    return int(said) if said and 0 < said < LONGEST_CONTEXT else 0


# -- the same, streamed ---------------------------------------------------------------------------------


class _FunctionPiece(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallPiece(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _FunctionPiece = msgspec.field(default_factory=_FunctionPiece)


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _Piece(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Piece] = []
    id: Any = None
    created: Any = None
    model: str | None = None
    usage: _EngineUsage | None = None
    error: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


def read_stream(body: bytes) -> Completion[Choice]:
    """A streamed completion, read to its end.

    Streaming is used for engines that notice a closed connection only while they write: without it llama.cpp
    generates to the end.

    Raises:
        ForeignAnswer: the body is not a stream of completion chunks, reports an error, or stops short.
    """
    texts: list[str] = []
    thoughts: list[str] = []
    calls: defaultdict[int, list[_CallPiece]] = defaultdict(list)
    last, usage, reason = _Chunk(), None, None
    for last in _chunks(body):
        usage = last.usage or usage
        # The chunk with the usage has no choice.
        for part in last.choices[:1]:
            texts.append(part.delta.content or "")
            thoughts.append(part.delta.reasoning_content or part.delta.reasoning or "")
            for call in part.delta.tool_calls or ():
                calls[call.index].append(call)
            reason = part.finish_reason or reason
    # Without one the connection broke: what has come looks like a whole answer.
    if not reason:
        raise ForeignAnswer("the stream stops short")
    message = _Answered(
        content=Raw(encode("".join(texts))),
        reasoning_content="".join(thoughts),
        # Pieces of several calls may come interleaved.
        tool_calls=[_merged(pieces) for _, pieces in sorted(calls.items())],
    )
    return Completion(
        choices=[Choice(message, reason)], id=last.id, created=last.created, model=last.model, usage=usage
    )


def _chunks(body: bytes) -> Iterator[_Chunk]:
    """One at a time: a body of nothing but line ends makes no list of millions."""
    for line in io.BytesIO(body):
        data = line.removeprefix(_DATA).strip() if line.startswith(_DATA) else b""
        if not data or data == _END:
            continue
        try:
            chunk = _decode_chunk(data)
        except UNREADABLE as error:
            raise ForeignAnswer(str(error)) from error
        if chunk.error is not None:
            raise ForeignAnswer(f"the engine broke off: {chunk.error}")
        yield chunk


def _merged(pieces: Sequence[_CallPiece]) -> _Call:
    functions = [piece.function for piece in pieces]
    name = next((one.name for one in functions if one.name), "")
    arguments = "".join(one.arguments or "" for one in functions)
    return _Call(
        _Function(Raw(encode(name)), Raw(encode(arguments))), next((one.id for one in pieces if one.id), None)
    )


# -- a response becomes a client's completion -----------------------------------------------------------


class _Logged(msgspec.Struct):
    content: list[_Logged] = []
    logprobs: list[Raw] | None = None


_decode_logged = msgspec.json.Decoder(_Logged).decode


class _Said:
    """A response's content in this dialect."""

    def __init__(self, raw: Raw, asked: Asked) -> None:
        response = decode_response(raw)
        self.thought, self.text, self.refusal = "", "", ""
        self.calls: list[FunctionCall] = []
        logprobs: list[Raw] = []
        for one in decode_items(response.output):
            match one:
                case Reasoning():
                    self.thought += one.text
                case Message():
                    self.text += one.text
                    # A look at the bytes first: few messages have them.
                    if one.raw is not None and b'"logprobs":[' in bytes(one.raw):
                        for part in _decode_logged(one.raw).content:
                            logprobs += part.logprobs or ()
                    self.refusal += "".join(part.refusal or "" for part in one.parts)
                case FunctionCall():
                    self.calls.append(one)
                case _:
                    raise ModelRefused(f"Chat Completions cannot carry the model's {type(one).__name__}")
        self.logprobs = {"content": logprobs, "refusal": None} if logprobs else None
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


def write_answer(raw: Raw, asked: Asked) -> bytes:
    """A completion."""
    said = _Said(raw, asked)
    choice = {
        "index": 0,
        "message": said.message,
        "logprobs": said.logprobs,
        "finish_reason": said.finish_reason,
    }
    return encode({**said.head, "object": "chat.completion", "choices": [choice], "usage": said.usage})


def write_events(raw: Raw, asked: Asked) -> Iterator[bytes]:
    """Its chunks; the last ones have the finish reason and, if requested, the usage."""
    said = _Said(raw, asked)
    head: dict[str, Any] = {**said.head, "object": "chat.completion.chunk"}
    # Then each chunk has the field, which is null before the last one.
    if asked.include_usage:
        head["usage"] = None

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        logged = {"logprobs": said.logprobs if delta.get("content") else None}
        choice = {"index": 0, "delta": delta, **logged, "finish_reason": finish_reason}
        return event({**head, "choices": [choice]})

    # OpenAI's first chunk has the role and an empty text.
    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for name, text in (
        ("reasoning_content", said.thought),
        ("content", said.text),
        ("refusal", said.refusal),
    ):
        if text:
            yield chunk({name: text})
    for index, call in enumerate(said.calls):
        begun = _call(call)
        begun["function"]["arguments"] = ""
        yield chunk({"tool_calls": [{"index": index, **begun}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": call.arguments}}]})
    yield chunk({}, said.finish_reason)
    if asked.include_usage:
        yield event({**head, "choices": [], "usage": said.usage})
    yield _DONE


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
    read=read_request,
    answer=write_answer,
    events=write_events,
    error=openai_error,
    error_event=lambda problem: event(openai_error(problem)[1]),
)
