"""Chat Completions and the Responses API: a request's parameters, tools and formats, in both directions.

The conversation is converted by `chat_messages`. For an engine it differs from turn to turn; all the rest is
the same for every turn of a rollout and is built once; tool schemas are passed on as the JSON that they are.
Sampling settings that the Responses API does not have (``seed``, ``stop``, penalties, an engine's own) travel
in ``metadata.extra_body``. Source: OpenAI's API reference of both, and NeMo Gym's converter for what the
reference leaves open.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

import msgspec
from gym_runtime.adapters import ConversationNotes, ModelCall
from gym_runtime.errors import UNREADABLE, TaskError
from msgspec import Meta, Raw

from gym_faces.dialects import side_channel
from gym_faces.dialects.chat_messages import Message, Reasoning, ToolImages, read_messages, write_messages
from gym_faces.dialects.dialect import MAX_ITEMS, Asked, Fields
from gym_faces.dialects.pieces import decode_fields, decode_text, encode, is_null, present

PATH = "/chat/completions"
# Parameters with the same name and meaning in both APIs: a client's, and an engine's.
_SAME = (
    *("temperature", "top_p", "user", "service_tier", "store", "parallel_tool_calls", "safety_identifier"),
    "prompt_cache_key",
)
_SAME_FOR_ENGINES = (
    *("temperature", "top_p", "top_logprobs", "user", "service_tier", "store", "seed", "safety_identifier"),
    "prompt_cache_key",
)
_REFUSED = {
    "functions": "use 'tools'",
    "function_call": "use 'tool_choice'",
    "audio": "the models here answer in text",
    "prediction": "predicted outputs cannot be carried",
    "web_search_options": "there are no hosted tools here; give your own as functions",
}
# Prefixes: dates may follow. Tools that a client runs itself (custom tools, shells, patches) are refused.
_HOSTED = ("web_search", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search")
_LOGPROBS = "message.output_text.logprobs"
_IMPOSSIBLE = ("previous_response_id", "prompt", "conversation")


# -- a client's request becomes a call ------------------------------------------------------------------


class _Definition(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _ChatTool(msgspec.Struct):
    type: str
    function: _Definition | None = None


class _Named(msgspec.Struct):
    name: str


class _AllowedTool(msgspec.Struct):
    function: _Named


class _Allowed(msgspec.Struct):
    mode: str = "auto"
    tools: list[_AllowedTool] = []


class _ChatChoice(msgspec.Struct):
    type: str
    function: _Named | None = None
    allowed_tools: _Allowed | None = None


class _ChatFormat(msgspec.Struct):
    type: str
    json_schema: dict[str, Any] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


def read_request(body: bytes) -> Asked:
    """A client's body of ``POST /chat/completions``.

    Raises:
        TaskError: it is invalid, or has a field that cannot be carried; the message names the field.
    """
    fields = Fields(body)
    fields.refuse(_REFUSED)
    if fields.take("n", int, 1) != 1:
        raise TaskError("n: one answer per call; make several calls for several answers")
    if fields.take("modalities", list[str], ["text"]) != ["text"]:
        raise TaskError("modalities: the models here answer in text")
    model = fields.take("model", str, "")
    stream = fields.take("stream", bool, False)
    options: _StreamOptions | None = fields.take("stream_options", _StreamOptions)
    items = read_messages(fields.require("messages", Annotated[list[Message], Meta(max_length=MAX_ITEMS)]))
    params = fields.take_raw(*_SAME)
    # The Responses API asks for these by `include`.
    if fields.take("logprobs", bool, False):
        params |= {"include": [_LOGPROBS], **fields.take_raw("top_logprobs")}
    fields.refuse({"top_logprobs": "this needs 'logprobs' to be true"})
    # The newer name comes second, so that it wins.
    for name in ("max_tokens", "max_completion_tokens"):
        if (limit := fields.take(name, int)) is not None:
            params["max_output_tokens"] = limit
    if tools := fields.take("tools", list[_ChatTool]):
        params["tools"] = [_tool(tool) for tool in tools]
    if (choice := fields.take("tool_choice", str | _ChatChoice)) is not None:
        params["tool_choice"] = choice if isinstance(choice, str) else _choice(choice)
    if (effort := fields.take("reasoning_effort", str)) is not None:
        params["reasoning"] = {"effort": effort}
    text: dict[str, Any] = fields.take_raw("verbosity")
    if (wanted := fields.take("response_format", _ChatFormat)) is not None:
        text["format"] = {"type": wanted.type, **(wanted.json_schema or {})}
    if text:
        params["text"] = text
    params |= side_channel.write(fields.take("metadata", dict[str, str], {}), fields.rest())
    return Asked(
        call=ModelCall(params=Raw(encode(params)), input=items),
        model=model,
        stream=stream,
        include_usage=options is not None and options.include_usage,
    )


def _tool(tool: _ChatTool) -> dict[str, Any]:
    if tool.type != "function" or tool.function is None:
        raise TaskError(f"tools: a tool of type '{tool.type}' cannot be carried, only functions")
    function = tool.function
    return {
        "type": "function",
        "name": function.name,
        "description": function.description,
        # The Responses API needs a schema; Chat Completions let it be left out.
        "parameters": function.parameters or {"type": "object", "properties": {}},
        # The Responses API takes a missing `strict` for true, Chat Completions for false.
        "strict": bool(function.strict),
    }


def _choice(choice: _ChatChoice) -> dict[str, Any]:
    if choice.type == "function" and choice.function:
        return {"type": "function", "name": choice.function.name}
    if choice.type == "allowed_tools" and choice.allowed_tools:
        allowed = choice.allowed_tools
        tools = [{"type": "function", "name": tool.function.name} for tool in allowed.tools]
        return {"type": "allowed_tools", "mode": allowed.mode, "tools": tools}
    raise TaskError(f"tool_choice: '{choice.type}' cannot be carried")


# -- a call becomes an engine's request -----------------------------------------------------------------


class ChatVariant(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine's Chat Completions differ from another's.

    Attributes:
        reasoning: how a turn's thinking goes back to the engine: as that field of the message, within
            ``<think>`` tags at its start, or not at all.
        tool_images: where images of tools go: into the ``tool`` message, or into a ``user`` message after the
            last tool message of the turn, for engines that take only texts from tools.
        max_tokens: the name of the field that limits the answer.
        token_fields: sent when tokens are wanted; the names are vLLM's.
        stream: ask for a stream, though the answer is read as one, so that the engine notices when its
            client leaves. Not where tokens or log-probabilities are wanted: llama.cpp reports none in a
            stream with tools.
        narrow_choice: for engines that ignore a named function: it becomes the only tool, and required.
        engine: its name in errors.
        sampling: which parameters of `side_channel.ALL` it has; the others are refused by name.
        names: its own names for some of them.
    """

    reasoning: Reasoning = "reasoning_content"
    tool_images: ToolImages = "tool"
    max_tokens: str = "max_tokens"
    token_fields: tuple[tuple[str, bool | int], ...] = (("logprobs", True), ("return_token_ids", True))
    stream: bool = False
    narrow_choice: bool = False
    engine: str = "the engine"
    sampling: frozenset[str] = side_channel.ALL
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


class _Params(msgspec.Struct):
    """The parameters that an engine gets in another form."""

    tools: list[_Tool] = []
    text: _Text = msgspec.field(default_factory=_Text)
    reasoning: _Effort = msgspec.field(default_factory=_Effort)
    instructions: str | None = None
    include: list[str] = []
    top_logprobs: Raw = Raw()

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.top_logprobs) or _LOGPROBS in self.include


_decode_params = msgspec.json.Decoder(_Params).decode
_decode_choice = msgspec.json.Decoder(str | _Choice).decode


def write_request(
    call: ModelCall,
    model: str,
    extra_body: bytes,
    dialect: ChatVariant,
    notes: ConversationNotes | None = None,
) -> bytes:
    """The body of ``POST /chat/completions``; fields take precedence as in `responses_api.write_request`.

    With the ``notes`` of its conversation each item is converted once.

    Raises:
        TaskError: the row holds what Chat Completions cannot carry, or a malformed item.
        ModelRefused: the row holds a sampling parameter that the engine does not have.
    """
    try:
        head, instructions = _head(bytes(call.params), model, extra_body, dialect, call.return_tokens)
        return b"".join(
            (
                head,
                *write_messages(call.input, instructions, dialect.reasoning, dialect.tool_images, notes),
                b"]}",
            )
        )
    except UNREADABLE as error:
        raise TaskError(f"the conversation is not a Responses API input: {error}", stage="model") from error


@lru_cache(maxsize=256)
def _head(
    params: bytes, model: str, extra_body: bytes, dialect: ChatVariant, return_tokens: bool
) -> tuple[bytes, str | None]:
    """Everything but the messages, which are the last field; and the instructions."""
    fields = present(params)
    for name in _IMPOSSIBLE:
        if name in fields:
            raise TaskError(
                f"Chat Completions has no '{name}'; use an engine with the Responses API", stage="model"
            )
    # Before `side_channel.take`, which removes the mark.
    optional = side_channel.tools_are_optional(fields)
    side_channel.require(side_channel.asked(fields), dialect.sampling, dialect.engine)
    extra = dict(side_channel.take(fields))
    for name, theirs in dialect.names:
        if name in extra:
            extra[theirs] = extra.pop(name)
    body: dict[str, Any] = {"model": model or fields.get("model"), **decode_fields(extra_body)}
    body.update((name, fields[name]) for name in _SAME_FOR_ENGINES if name in fields)
    given = _decode_params(encode(fields))
    if given.wants_logprobs:
        body["logprobs"] = True
    if "max_output_tokens" in fields:
        body[dialect.max_tokens] = fields["max_output_tokens"]
    tools = [tool for tool in given.tools if not (optional and _is_hosted(tool))]
    if tools:
        choice = _chat_tool_choice(fields["tool_choice"]) if "tool_choice" in fields else "auto"
        if dialect.narrow_choice and isinstance(choice, dict):
            tools, choice = _narrowed(tools, choice)
        body["tools"] = [_chat_tool(tool) for tool in tools]
        if choice != "auto":
            body["tool_choice"] = choice
        if bytes(fields.get("parallel_tool_calls", b"true")) == b"false":
            body["parallel_tool_calls"] = False
    if given.text.format is not None and given.text.format.type != "text":
        body["response_format"] = _response_format(given.text.format)
    if given.text.verbosity is not None:
        body["verbosity"] = given.text.verbosity
    if given.reasoning.effort is not None:
        body["reasoning_effort"] = given.reasoning.effort
    if return_tokens:
        body.update(dialect.token_fields)
    elif dialect.stream and not given.wants_logprobs:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    # The object stays open: `write_request` adds the messages, which differ from turn to turn.
    return encode({**body, **extra})[:-1] + b',"messages":[', given.instructions


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
    """Taken once for all turns of a rollout, from parameters that `write_request` has accepted."""
    fields = present(params)
    given = _decode_params(encode(fields))
    hosted = tuple(tool.type for tool in given.tools if _is_hosted(tool))
    left_out = hosted if side_channel.tools_are_optional(fields) else ()
    return Notes(left_out=left_out, logprobs=given.wants_logprobs)


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
    schema = {name: value for name, value in msgspec.structs.asdict(wanted).items() if name != "type"}
    given = {name: value for name, value in schema.items() if not is_null(value)}
    return {"type": "json_schema", "json_schema": given}
