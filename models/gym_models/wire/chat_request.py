"""Responses API → Chat Completions: the way to engines that have only the older dialect.

    input                                     messages
    instructions, system, developer           one system message, first
    user                                      user; a lone text part becomes a plain string
    reasoning, assistant text, function_call  one assistant message per run of them
    function_call_output                      tool

Only the joints are written anew: text, arguments and tool schemas are passed on as the JSON that they
are. Source: OpenAI's API reference of both, and NeMo Gym's converter for what it leaves open.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import msgspec
from gym_runtime.errors import TaskError
from gym_runtime.messages.calls import ModelCall
from msgspec import Raw

from gym_models.wire import pieces
from gym_models.wire.pieces import Bytes, decode_text, encode, is_null, is_string

PATH = "/chat/completions"

_SAME_NAME = (
    *("temperature", "top_p", "top_logprobs", "user", "service_tier", "store", "seed", "safety_identifier"),
    "prompt_cache_key",
)
_IMPOSSIBLE = ("previous_response_id", "prompt", "conversation")

Reasoning = Literal["reasoning_content", "reasoning", "think", "drop"]


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine's Chat Completions differ from the next one's.

    Attributes:
        reasoning: how a turn's thinking goes back to the engine: as that field of the message, within
            ``<think>`` tags at its start, or not at all.
        max_tokens: the name of the field that limits the answer.
        token_fields: sent when tokens are wanted; the names are vLLM's.
        stream: ask for a stream, though the answer is read as one, so that the engine notices when its
            client leaves. Not where tokens are wanted: llama.cpp reports none in a stream with tools.
    """

    reasoning: Reasoning = "reasoning_content"
    max_tokens: str = "max_tokens"
    token_fields: tuple[tuple[str, bool | int], ...] = (("logprobs", True), ("return_token_ids", True))
    stream: bool = False


class _Entry(msgspec.Struct):
    """Any input item; what is passed on stays JSON."""

    type: str = "message"
    role: str = ""
    content: Raw = Raw()
    call_id: Raw = Raw()
    name: Raw = Raw()
    arguments: Raw = Raw()
    output: Raw = Raw()
    summary: Raw = Raw()


class _Part(msgspec.Struct):
    type: str = "input_text"
    text: Raw = Raw()
    image_url: Raw = Raw()
    detail: Raw = Raw()
    input_audio: Raw = Raw()
    refusal: Raw = Raw()
    file_id: Raw = Raw()
    file_data: Raw = Raw()
    filename: Raw = Raw()


class _Tool(msgspec.Struct):
    type: str
    name: Raw = Raw()
    description: Raw = Raw()
    parameters: Raw = Raw()
    strict: bool | None = None


class _Choice(msgspec.Struct):
    type: str
    name: str = ""
    mode: str = "auto"
    tools: list[dict[str, Any]] = []


class _Format(msgspec.Struct):
    type: str = "text"
    name: Raw = Raw()
    schema: Raw = Raw()
    strict: Raw = Raw()
    description: Raw = Raw()


class _Text(msgspec.Struct):
    format: _Format | None = None
    verbosity: str | None = None


class _Effort(msgspec.Struct):
    effort: str | None = None


_decode_entry = msgspec.json.Decoder(_Entry).decode
_decode_parts = msgspec.json.Decoder(list[_Part]).decode
_decode_tools = msgspec.json.Decoder(list[_Tool]).decode
_decode_choice = msgspec.json.Decoder(str | _Choice).decode
_decode_text_settings = msgspec.json.Decoder(_Text).decode
_decode_effort = msgspec.json.Decoder(_Effort).decode


def request(call: ModelCall, model: str, extra_body: bytes, dialect: Dialect) -> bytes:
    """The body of ``POST /chat/completions``; what wins over what is as in `responses.request`.

    Raises:
        TaskError: the row holds what Chat Completions cannot carry, or a malformed item.
    """
    try:
        head, instructions = _head(bytes(call.params), model, extra_body, dialect, call.return_tokens)
        messages = _Messages(instructions, dialect)
        for raw in call.input:
            messages.add(_decode_entry(raw))
        return head + b",".join(messages.finish()) + b"]}"
    except msgspec.DecodeError as error:
        raise TaskError(f"a conversation that is no Responses API input: {error}", stage="model") from error


class _Messages:
    """Messages so far, and the assistant's pieces that are still to be merged into one."""

    def __init__(self, instructions: str | None, dialect: Dialect) -> None:
        self._system: list[str] = [instructions] if instructions else []
        self._done: list[bytes] = []
        self._dialect = dialect
        self._texts: list[Bytes] = []
        self._thoughts: list[str] = []
        self._calls: list[bytes] = []

    def add(self, entry: _Entry) -> None:
        match entry.type:
            case "message":
                self._add_message(entry)
            case "function_call":
                if not (is_string(entry.call_id) and is_string(entry.name) and is_string(entry.arguments)):
                    raise TaskError("a function_call lacks its call_id, name or arguments", stage="model")
                self._calls.append(
                    b'{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}}'
                    % (entry.call_id, entry.name, entry.arguments)
                )
            case "function_call_output":
                if not is_string(entry.call_id):
                    raise TaskError("a function_call_output lacks its call_id", stage="model")
                self._flush()
                content = entry.output if is_string(entry.output) else _content(entry.output)
                self._done.append(
                    b'{"role":"tool","tool_call_id":%b,"content":%b}' % (entry.call_id, content)
                )
            case "reasoning":
                self._thoughts.append(_joined(entry.content) or _joined(entry.summary))
            case other:
                raise TaskError(
                    f"Chat Completions cannot carry an input item of type '{other}'", stage="model"
                )

    def _add_message(self, entry: _Entry) -> None:
        match entry.role:
            case "user":
                self._flush()
                content = entry.content if is_string(entry.content) else _content(entry.content)
                self._done.append(b'{"role":"user","content":%b}' % content)
            case "assistant":
                self._texts.extend(
                    [entry.content] if is_string(entry.content) else _assistant_texts(entry.content)
                )
            case "system" | "developer":
                self._system.append(_joined(entry.content))
            case other:
                raise TaskError(f"an input message has the role '{other}'", stage="model")

    def _flush(self) -> None:
        if not (self._texts or self._calls or self._thoughts):
            return
        thoughts = "".join(self._thoughts)
        texts = self._texts
        fields = b""
        if thoughts and self._dialect.reasoning == "think":
            texts = [encode(f"<think>{thoughts}</think>"), *texts]
        elif thoughts and self._dialect.reasoning != "drop":
            fields += b',"%b":%b' % (self._dialect.reasoning.encode(), encode(thoughts))
        if self._calls:
            fields += b',"tool_calls":' + pieces.array(self._calls)
        if texts or fields:
            content = b"null" if self._calls else b'""'
            if len(texts) == 1:
                content = texts[0]
            elif texts:
                content = encode("".join(map(decode_text, texts)))
            self._done.append(b'{"role":"assistant","content":%b%b}' % (content, fields))
        self._texts, self._thoughts, self._calls = [], [], []

    def finish(self) -> list[bytes]:
        self._flush()
        if self._system:
            text = "\n\n".join(text for text in self._system if text)
            return [b'{"role":"system","content":%b}' % encode(text), *self._done]
        return self._done


def _joined(content: Raw) -> str:
    """The text of a string or of a list of parts."""
    if is_null(content):
        return ""
    if is_string(content):
        return decode_text(content)
    return "".join(decode_text(part.text) for part in _decode_parts(content) if not is_null(part.text))


def _assistant_texts(content: Raw) -> list[Bytes]:
    found = (part.refusal if part.type == "refusal" else part.text for part in _decode_parts(content))
    return [text for text in found if not is_null(text)]


def _content(content: Raw) -> Bytes:
    """A user's or a tool's content parts in the Chat form; a lone text is a string, as templates like it."""
    parts = _decode_parts(content)
    if len(parts) == 1 and not is_null(parts[0].text):
        return parts[0].text
    return pieces.array(map(_part, parts))


def _part(part: _Part) -> bytes:
    match part.type:
        case "input_text" | "output_text" | "text":
            return b'{"type":"text","text":%b}' % part.text
        case "input_image":
            if is_null(part.image_url):
                raise TaskError("Chat Completions needs the 'image_url' of an input_image", stage="model")
            detail = b"" if is_null(part.detail) else b',"detail":%b' % part.detail
            return b'{"type":"image_url","image_url":{"url":%b%b}}' % (part.image_url, detail)
        case "input_audio":
            return b'{"type":"input_audio","input_audio":%b}' % part.input_audio
        case "input_file":
            file = {"file_id": part.file_id, "file_data": part.file_data, "filename": part.filename}
            return encode({"type": "file", "file": {k: v for k, v in file.items() if not is_null(v)}})
        case other:
            raise TaskError(f"Chat Completions cannot carry a content part of type '{other}'", stage="model")


@lru_cache(maxsize=256)
def _head(
    params: bytes, model: str, extra_body: bytes, dialect: Dialect, return_tokens: bool
) -> tuple[bytes, str | None]:
    """Everything but the messages, which are the last field; and the instructions."""
    fields = {name: value for name, value in pieces.decode_fields(params).items() if not is_null(value)}
    for name in _IMPOSSIBLE:
        if name in fields:
            raise TaskError(
                f"Chat Completions has no '{name}'; use an engine with the Responses API", stage="model"
            )
    side_channel = pieces.take_side_channel(fields)
    body: dict[str, Any] = {"model": model or fields.get("model"), **pieces.decode_fields(extra_body)}
    body.update((name, fields[name]) for name in _SAME_NAME if name in fields)
    if "top_logprobs" in fields:
        body["logprobs"] = True
    if "max_output_tokens" in fields:
        body[dialect.max_tokens] = fields["max_output_tokens"]
    if "tools" in fields and (tools := _decode_tools(fields["tools"])):
        body["tools"] = [_chat_tool(tool) for tool in tools]
        if "tool_choice" in fields and (choice := _chat_tool_choice(fields["tool_choice"])) != "auto":
            body["tool_choice"] = choice
        if bytes(fields.get("parallel_tool_calls", b"true")) == b"false":
            body["parallel_tool_calls"] = False
    if "text" in fields:
        text = _decode_text_settings(fields["text"])
        if text.format is not None and text.format.type != "text":
            body["response_format"] = _response_format(text.format)
        if text.verbosity is not None:
            body["verbosity"] = text.verbosity
    if "reasoning" in fields and (effort := _decode_effort(fields["reasoning"]).effort) is not None:
        body["reasoning_effort"] = effort
    if return_tokens:
        body.update(dialect.token_fields)
    elif dialect.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    instructions = decode_text(fields["instructions"]) if "instructions" in fields else None
    return encode({**body, **side_channel})[:-1] + b',"messages":[', instructions


def _chat_tool(tool: _Tool) -> dict[str, Any]:
    if tool.type != "function":
        raise TaskError(f"Chat Completions has no hosted tool '{tool.type}'", stage="model")
    function: dict[str, Any] = {"name": tool.name}
    if not is_null(tool.description):
        function["description"] = tool.description
    if not is_null(tool.parameters):
        function["parameters"] = tool.parameters
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _chat_tool_choice(raw: Raw) -> str | dict[str, Any]:
    choice = _decode_choice(raw)
    if isinstance(choice, str):
        return choice
    match choice.type:
        case "function":
            return {"type": "function", "function": {"name": choice.name}}
        case "allowed_tools":
            tools = [{"type": "function", "function": {"name": tool.get("name")}} for tool in choice.tools]
            return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": tools}}
        case other:
            raise TaskError(f"Chat Completions has no tool_choice of type '{other}'", stage="model")


def _response_format(wanted: _Format) -> dict[str, Any]:
    if wanted.type != "json_schema":
        return {"type": wanted.type}
    schema = {
        "name": wanted.name,
        "schema": wanted.schema,
        "strict": wanted.strict,
        "description": wanted.description,
    }
    present = {name: value for name, value in schema.items() if not is_null(value)}
    return {"type": "json_schema", "json_schema": present}
