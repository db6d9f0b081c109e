"""Responses API → Chat Completions, for engines that have only the latter.

The conversation becomes messages (`chat_messages`), which differ from turn to turn. All the rest, the
sampling settings and the tools, is the same for every turn of a rollout and is built once; tool
schemas are passed on as the JSON that they are. Source: OpenAI's API reference of both, and NeMo Gym's
converter for what the reference leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from gym_runtime import TaskError
from gym_runtime.adapters import ConversationNotes, ModelCall
from gym_runtime.errors import UNREADABLE
from msgspec import Raw

from gym_models.wire import parameters, pieces
from gym_models.wire.chat_messages import Reasoning, messages
from gym_models.wire.pieces import decode_text, encode, is_null

PATH = "/chat/completions"

_SAME_NAME = (
    *("temperature", "top_p", "top_logprobs", "user", "service_tier", "store", "seed", "safety_identifier"),
    "prompt_cache_key",
)
# Prefixes: dates may follow. Tools that a client runs itself (custom tools, shells, patches) are refused.
_HOSTED = ("web_search", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search")
_LOGPROBS = "message.output_text.logprobs"
_IMPOSSIBLE = ("previous_response_id", "prompt", "conversation")


class ChatVariant(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine's Chat Completions differ from another's.

    Attributes:
        reasoning: how a turn's thinking goes back to the engine: as that field of the message, within
            ``<think>`` tags at its start, or not at all.
        max_tokens: the name of the field that limits the answer.
        token_fields: sent when tokens are wanted; the names are vLLM's.
        stream: ask for a stream, though the answer is read as one, so that the engine notices when its
            client leaves. Not where tokens or log-probabilities are wanted: llama.cpp reports none in a
            stream with tools.
        narrow_choice: for engines that ignore a named function: it becomes the only tool, and required.
        engine: its name in errors.
        sampling: which parameters of `sampling.ALL` it has; the others are refused by name.
        names: its own names for some of them.
    """

    reasoning: Reasoning = "reasoning_content"
    max_tokens: str = "max_tokens"
    token_fields: tuple[tuple[str, bool | int], ...] = (("logprobs", True), ("return_token_ids", True))
    stream: bool = False
    narrow_choice: bool = False
    engine: str = "the engine"
    sampling: frozenset[str] = parameters.ALL
    names: tuple[tuple[str, str], ...] = ()


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


_decode_tools = msgspec.json.Decoder(list[_Tool]).decode
_decode_choice = msgspec.json.Decoder(str | _Choice).decode
_decode_text_settings = msgspec.json.Decoder(_Text).decode
_decode_include = msgspec.json.Decoder(list[str]).decode
_decode_effort = msgspec.json.Decoder(_Effort).decode


def request(
    call: ModelCall,
    model: str,
    extra_body: bytes,
    dialect: ChatVariant,
    notes: ConversationNotes | None = None,
) -> bytes:
    """The body of ``POST /chat/completions``; fields take precedence as in `responses.request`.

    With the ``notes`` of its conversation each item is converted once.

    Raises:
        TaskError: the row holds what Chat Completions cannot carry, or a malformed item.
        ModelRefused: the row holds a sampling parameter that the engine does not have.
    """
    try:
        head, instructions = _head(bytes(call.params), model, extra_body, dialect, call.return_tokens)
        return b"".join((head, *messages(call.input, instructions, dialect.reasoning, notes), b"]}"))
    except UNREADABLE as error:
        raise TaskError(f"the conversation is not a Responses API input: {error}", stage="model") from error


@lru_cache(maxsize=256)
def _head(
    params: bytes, model: str, extra_body: bytes, dialect: ChatVariant, return_tokens: bool
) -> tuple[bytes, str | None]:
    """Everything but the messages, which are the last field; and the instructions."""
    fields = {name: value for name, value in pieces.decode_fields(params).items() if not is_null(value)}
    for name in _IMPOSSIBLE:
        if name in fields:
            raise TaskError(
                f"Chat Completions has no '{name}'; use an engine with the Responses API", stage="model"
            )
    # Before `take_side_channel`, which removes the mark.
    optional = pieces.tools_are_optional(fields)
    parameters.require(parameters.asked(fields), dialect.sampling, dialect.engine)
    side_channel = dict(pieces.take_side_channel(fields))
    for name, theirs in dialect.names:
        if name in side_channel:
            side_channel[theirs] = side_channel.pop(name)
    body: dict[str, Any] = {"model": model or fields.get("model"), **pieces.decode_fields(extra_body)}
    body.update((name, fields[name]) for name in _SAME_NAME if name in fields)
    logprobs = _wants_logprobs(fields)
    if logprobs:
        body["logprobs"] = True
    if "max_output_tokens" in fields:
        body[dialect.max_tokens] = fields["max_output_tokens"]
    tools = _decode_tools(fields["tools"]) if "tools" in fields else []
    if optional:
        tools = [tool for tool in tools if not _is_hosted(tool)]
    if tools:
        choice = _chat_tool_choice(fields["tool_choice"]) if "tool_choice" in fields else "auto"
        if dialect.narrow_choice and isinstance(choice, dict):
            tools, choice = _narrowed(tools, choice)
        body["tools"] = [_chat_tool(tool) for tool in tools]
        if choice != "auto":
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
    elif dialect.stream and not logprobs:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    instructions = decode_text(fields["instructions"]) if "instructions" in fields else None
    # The object stays open: `request` adds the messages, which differ from turn to turn.
    return encode({**body, **side_channel})[:-1] + b',"messages":[', instructions


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a request that its answer's conversion needs.

    Attributes:
        left_out: the types of the hosted tools that were left out.
        logprobs: the text is to come with its log-probabilities.
    """

    left_out: tuple[str, ...] = ()
    logprobs: bool = False


@lru_cache(maxsize=256)
def notes(params: bytes) -> Notes:
    """Taken once for all turns of a rollout, from parameters that `request` has accepted."""
    fields = {name: value for name, value in pieces.decode_fields(params).items() if not is_null(value)}
    tools = _decode_tools(fields["tools"]) if pieces.tools_are_optional(fields) and "tools" in fields else []
    return Notes(
        left_out=tuple(tool.type for tool in tools if _is_hosted(tool)), logprobs=_wants_logprobs(fields)
    )


def _wants_logprobs(fields: Mapping[str, Raw]) -> bool:
    included = _decode_include(fields["include"]) if "include" in fields else ()
    return "top_logprobs" in fields or _LOGPROBS in included


def _is_hosted(tool: _Tool) -> bool:
    return tool.type.startswith(_HOSTED)


def _chat_tool(tool: _Tool) -> dict[str, Any]:
    if tool.type != "function":
        raise TaskError(
            f"Chat Completions has no tools of type '{tool.type}'; switch it off in the agent that adds it, "
            "or use an engine with the Responses API",
            stage="model",
        )
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


def _narrowed(tools: list[_Tool], choice: dict[str, Any]) -> tuple[list[_Tool], str]:
    """Only the tools that a choice allows, and the choice as one word."""
    if choice["type"] == "function":
        names, word = {choice["function"]["name"]}, "required"
    else:
        allowed = choice["allowed_tools"]
        names, word = {tool["function"]["name"] for tool in allowed["tools"]}, allowed["mode"]
    kept = [tool for tool in tools if decode_text(tool.name or b'""') in names]
    if not kept:
        raise TaskError(f"tool_choice names no tool of the row: {', '.join(map(str, names))}", stage="model")
    return kept, word


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
