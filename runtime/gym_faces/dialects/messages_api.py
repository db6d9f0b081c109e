"""Anthropic's Messages API, for clients: a request becomes a call, the model's response a message or events.

    ====================================  ========================================================
    system                                a system message, its blocks joined by empty lines
    user: text, image, document           user messages with ``input_*`` parts
    user: tool_result                     ``function_call_output``
    assistant: thinking, text, tool_use   reasoning, message, ``function_call``
    ====================================  ========================================================

Anthropic's computer tools become the function ``computer``, a call of a toolset's member one of its actions.

Hints that do not change the answer (cache marks, tiers, budgets of thinking) are ignored, and so is a
result's ``is_error``, because its text says so. Sampling settings that the Responses API does not have
(``top_k``, ``stop_sequences``) reach the engine through ``metadata.extra_body``.

In an answer, thinking becomes a ``thinking`` block without a signature, a call a ``tool_use`` block whose
input is an object. Arguments that are not a JSON object become ``{"arguments": TEXT}``, so that the tool
reports an error and the model reads it. Source: Anthropic's API reference, "Create a Message" and "Streaming
messages".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any
from uuid import uuid4

import msgspec
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import UNREADABLE, ModelRefused, TaskError
from gym_runtime.messages import (
    FunctionCall,
    Message,
    Reasoning,
    Response,
    Usage,
    decode_items,
    decode_response,
)
from msgspec import Meta, Raw

from gym_faces.dialects import computer, messages_engine, side_channel
from gym_faces.dialects.dialect import (
    ERRORS,
    MAX_ITEMS,
    ApiDialect,
    Asked,
    Count,
    Fields,
    Problem,
    Refusal,
    assistant_message,
    counting,
    event,
    item,
    output_text,
    reasoning_item,
)
from gym_faces.dialects.pieces import encode

_OVERLOADED = 529
"""Anthropic's own status, where others write 503."""
_DELTAS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}
_HINTS = (
    *("cache_control", "context_management", "service_tier", "inference_geo", "speed", "diagnostics"),
    *("thinking", "user_profile_id", "workspace_id", "betas"),
)
_NO_THREADS = Problem(
    kind="invalid",
    message="thread: conversations are not kept here; send all messages without this field",
    # The client's tool runner asks for a thread unless it is told not to; on this code it asks again
    # without one.
    details={"error_code": "thread_unsupported_request"},
)
# The Responses API has no "max".
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "xhigh"}


class _Source(msgspec.Struct):
    type: str
    media_type: str = ""
    data: str = ""
    url: str = ""


class _Block(msgspec.Struct):
    type: str
    text: str | None = None
    source: _Source | None = None
    title: str | None = None
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")
    tool_use_id: str = ""
    toolset_name: str | None = None
    content: str | list[_Block] | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Block]


_Messages = Annotated[list[_Message], Meta(max_length=MAX_ITEMS)]


class _Member(msgspec.Struct):
    enabled: bool = True


class _Tool(msgspec.Struct):
    name: str = ""
    type: str | None = None
    configs: dict[str, _Member] | None = None
    description: str | None = None
    input_schema: Raw = Raw(b"{}")
    strict: bool | None = None


class _Choice(msgspec.Struct):
    type: str
    name: str = ""
    disable_parallel_tool_use: bool = False


class _Metadata(msgspec.Struct):
    user_id: str | None = None


class _Output(msgspec.Struct):
    effort: str | None = None
    format: dict[str, Any] | None = None


# -- the request ----------------------------------------------------------------------------------------


def read_request(body: bytes) -> Asked:
    """A body of ``POST /v1/messages``.

    Raises:
        TaskError: it is invalid, or has a field that cannot be carried; the message names the field.
        Refusal: the conversation is to be kept here.
    """
    fields = Fields(body)
    model = fields.require("model", str)
    stream = fields.take("stream", bool, False)
    params: dict[str, Any] = {"max_output_tokens": fields.require("max_tokens", int)}
    params |= fields.take_raw("temperature", "top_p")
    native = ""
    items = _system(fields.take("system", str | list[_Block]))
    for place, message in enumerate(fields.require("messages", _Messages)):
        try:
            items += _items(message)
        except TaskError as error:
            raise TaskError(f"messages.{place}.{error}") from error
    if tools := fields.take("tools", list[_Tool]):
        params["tools"] = [_tool(tool) for tool in tools]
        native = next((tool.type for tool in tools if tool.type in messages_engine.BETAS), "") or ""
    if (choice := fields.take("tool_choice", _Choice)) is not None:
        params |= _choice(choice)
    if (metadata := fields.take("metadata", _Metadata)) is not None and metadata.user_id:
        params["user"] = metadata.user_id
    if (wanted := fields.take("output_config", _Output)) is not None:
        params |= _output(wanted)
    extra = fields.take_raw("top_k")
    if stop := fields.take("stop_sequences", list[str]):
        extra["stop"] = stop
    if fields.take_raw("thread"):
        raise Refusal(_NO_THREADS)
    # Taken out and dropped, so that what is left is what cannot be carried.
    fields.take_raw(*_HINTS)
    fields.refuse(dict.fromkeys(fields.rest(), "this cannot be carried to the models here"))
    params |= side_channel.write({}, extra)
    call = ModelCall(params=Raw(encode(params)), input=items)
    return Asked(call=call, model=model, stream=stream, computer=native)


def read_count(body: bytes) -> Asked:
    """A body of ``POST /v1/messages/count_tokens``: a request without ``max_tokens``.

    Raises:
        TaskError: as `read_request`.
    """
    asked = read_request(encode({**Fields(body).rest(), "max_tokens": 1}))
    return msgspec.structs.replace(asked, call=counting(asked.call))


def write_count(raw: Raw) -> bytes:
    """The answer to it."""
    return encode({"input_tokens": (decode_response(raw).usage or Usage()).input_tokens})


def _system(system: str | list[_Block] | None) -> list[Raw]:
    if not system:
        return []
    if not isinstance(system, str):
        system = "\n\n".join(_text(block, "system") for block in system)
    return [item(role="system", content=system)]


def _items(message: _Message) -> list[Raw]:
    blocks = message.content
    match message.role:
        case "user":
            return [item(role="user", content=blocks)] if isinstance(blocks, str) else _user(blocks)
        case "assistant":
            return _assistant([_Block(type="text", text=blocks)] if isinstance(blocks, str) else blocks)
        case "system":
            return _system(blocks)
        case other:
            raise TaskError(f"role: '{other}' is unknown; use user or assistant")


def _user(blocks: list[_Block]) -> list[Raw]:
    """Each tool result is an item; the blocks between them are the user's messages."""
    items: list[Raw] = []
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if block.type != "tool_result":
            parts.append(_part(block))
            continue
        if parts:
            items.append(item(role="user", content=parts))
            parts = []
        output = block.content or ""
        if not isinstance(output, str):
            output = [_part(inner) for inner in output]
        items.append(item(type="function_call_output", call_id=block.tool_use_id, output=output))
    return [*items, item(role="user", content=parts)] if parts else items


def _assistant(blocks: list[_Block]) -> list[Raw]:
    items: list[Raw] = []
    for block in blocks:
        match block.type:
            case "text":
                if text := _text(block, "content"):
                    items.append(assistant_message([output_text(text)]))
            case "thinking":
                items.append(reasoning_item(block.thinking))
            case "tool_use":
                # Undecoded: the arguments must be the text that the model wrote.
                arguments, name = bytes(block.input).decode(), block.name
                if block.toolset_name == computer.NAME:
                    given = computer.decoded(arguments) or {}
                    name, arguments = computer.NAME, encode({"action": name, **given}).decode()
                items.append(item(type="function_call", call_id=block.id, name=name, arguments=arguments))
            case other:
                raise TaskError(f"content: an assistant's block of type '{other}' cannot be carried")
    return items


def _text(block: _Block, place: str) -> str:
    if block.type != "text" or block.text is None:
        raise TaskError(f"{place}: a block of type '{block.type}' cannot be carried here, only text")
    return block.text


def _part(block: _Block) -> dict[str, Any]:
    match block:
        case _Block(type="text", text=str(text)):
            return {"type": "input_text", "text": text}
        case _Block(type="image", source=_Source(type="base64", media_type=kind, data=data)):
            return {"type": "input_image", "image_url": f"data:{kind};base64,{data}", "detail": "auto"}
        case _Block(type="image", source=_Source(type="url", url=url)):
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case _Block(type="document", source=_Source(type="text", data=data)):
            return {"type": "input_text", "text": data}
        case _Block(type="document", source=_Source(type="base64", media_type=kind, data=data)):
            name = block.title or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": f"data:{kind};base64,{data}"}
        case _:
            source = f" with a source of type '{block.source.type}'" if block.source else ""
            raise TaskError(f"content: a block of type '{block.type}'{source} cannot be carried")


def _tool(tool: _Tool) -> dict[str, Any]:
    if tool.type in messages_engine.BETAS:
        configs = tool.configs or {}
        return computer.function(
            one for one in computer.ACTIONS if one not in configs or configs[one].enabled
        )
    if tool.type not in (None, "custom"):
        raise TaskError(f"tools: the hosted tool '{tool.type}' is not available; define a tool with a schema")
    if not tool.name:
        raise TaskError("tools: a tool needs its name")
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        # The Responses API takes a missing `strict` for true, the Messages API for false.
        "strict": bool(tool.strict),
    }


def _choice(choice: _Choice) -> dict[str, Any]:
    params: dict[str, Any] = {"parallel_tool_calls": False} if choice.disable_parallel_tool_use else {}
    match choice.type:
        case "auto" | "none":
            return {**params, "tool_choice": choice.type}
        case "any":
            return {**params, "tool_choice": "required"}
        case "tool":
            return {**params, "tool_choice": {"type": "function", "name": choice.name}}
        case other:
            raise TaskError(f"tool_choice: '{other}' is unknown; use auto, any, tool or none")


def _output(wanted: _Output) -> dict[str, Any]:
    params: dict[str, Any] = {}
    if wanted.effort is not None:
        params["reasoning"] = {"effort": _EFFORTS.get(wanted.effort, wanted.effort)}
    if wanted.format is not None:
        params["text"] = {"format": {"name": "answer", "strict": True, **wanted.format}}
    return params


# -- the answer -----------------------------------------------------------------------------------------


def write_answer(raw: Raw, asked: Asked) -> bytes:
    """A message."""
    return encode(_message(raw, asked))


def write_events(raw: Raw, asked: Asked) -> Iterator[bytes]:
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
            delta = {"type": "input_json_delta", "partial_json": encode(block["input"]).decode()}
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
    # All counts again, as Anthropic's streams have them: some clients read only these.
    yield say("message_delta", delta=end, usage=message["usage"])
    yield say("message_stop")


def _error(problem: Problem) -> tuple[int, bytes]:
    """Status and body of an error."""
    status = _OVERLOADED if problem.kind == "overloaded" else ERRORS[problem.kind].status
    return status, encode(_error_body(problem))


def _error_event(problem: Problem) -> bytes:
    """An error in a stream, which then ends."""
    return event(_error_body(problem), "error")


def _error_body(problem: Problem) -> dict[str, Any]:
    said = {"type": ERRORS[problem.kind].anthropic, "message": problem.message}
    return {"type": "error", "error": {**said, **({"details": problem.details} if problem.details else {})}}


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
                used: dict[str, Any] = {"name": one.name, "input": called}
                if one.name == computer.NAME and asked.computer == messages_engine.TOOLSET:
                    used |= _member(called)
                blocks.append({"type": "tool_use", "id": one.call_id, **used})
            case _:
                raise ModelRefused(f"the Messages API cannot carry the model's {type(one).__name__}")
    return {
        # Not the engine's: some give an id twice, and Claude Code takes two answers with one id for parts of
        # one message, which changes the conversation that it sends next.
        "id": f"msg_{uuid4().hex}",
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
        # Engines write nothing for a tool without parameters.
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except UNREADABLE:
        return {"arguments": text}


def _member(called: dict[str, Any]) -> dict[str, Any]:
    """The member of Anthropic's toolset that a call of the function names."""
    if called.get("action") not in computer.ACTIONS:
        return {}
    given = {name: value for name, value in called.items() if name != "action"}
    return {"name": called["action"], "input": given, "toolset_name": computer.NAME}


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
    read=read_request,
    answer=write_answer,
    events=write_events,
    error=_error,
    error_event=_error_event,
)
MESSAGES_COUNT = Count(
    # Claude Code does without where it is told so by 404.
    path=MESSAGES.path + "/count_tokens",
    read=read_count,
    write=write_count,
    lacking="not_found",
)
