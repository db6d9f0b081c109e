"""Anthropic's Messages API → Responses API: a client's request as a call's conversation and parameters.

    ====================================  ========================================================
    system                                a system message, its blocks joined by empty lines
    user: text, image, document           user messages with ``input_*`` parts
    user: tool_result                     ``function_call_output``
    assistant: thinking, text, tool_use   reasoning, message, ``function_call``
    ====================================  ========================================================

Hints that do not change the answer (cache marks, tiers, budgets of thinking) are ignored, and so is a
result's ``is_error``, because its text says so. Sampling settings that the Responses API does not have
(``top_k``, ``stop_sequences``) reach the engine through ``metadata.extra_body``. Source: Anthropic's API
reference, "Create a Message".
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from gym_runtime.errors import TaskError
from gym_runtime.messages.calls import ModelCall
from msgspec import Meta, Raw

from gym_faces.gateway.dialect import (
    MAX_ITEMS,
    Asked,
    Fields,
    assistant_message,
    encode,
    item,
    output_text,
    reasoning,
    side_channel,
)

_HINTS = (
    *("cache_control", "context_management", "service_tier", "inference_geo", "speed", "diagnostics"),
    *("thinking", "user_profile_id", "workspace_id", "betas"),
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
    content: str | list[_Block] | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Block]


_Messages = Annotated[list[_Message], Meta(max_length=MAX_ITEMS)]


class _Tool(msgspec.Struct):
    name: str
    type: str | None = None
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


def read(body: bytes) -> Asked:
    """A body of ``POST /v1/messages``.

    Raises:
        TaskError: it is invalid, or has a field that cannot be carried; the message names the field.
    """
    fields = Fields(body)
    model = fields.require("model", str)
    stream = fields.take("stream", bool, False)
    params: dict[str, Any] = {"max_output_tokens": fields.require("max_tokens", int)}
    params |= fields.take_raw("temperature", "top_p")
    items = _system(fields.take("system", str | list[_Block]))
    for place, message in enumerate(fields.require("messages", _Messages)):
        try:
            items += _items(message)
        except TaskError as error:
            raise TaskError(f"messages.{place}.{error}") from error
    if tools := fields.take("tools", list[_Tool]):
        params["tools"] = [_tool(tool) for tool in tools]
    if (choice := fields.take("tool_choice", _Choice)) is not None:
        params |= _choice(choice)
    if (metadata := fields.take("metadata", _Metadata)) is not None and metadata.user_id:
        params["user"] = metadata.user_id
    if (wanted := fields.take("output_config", _Output)) is not None:
        params |= _output(wanted)
    extra = fields.take_raw("top_k")
    if stop := fields.take("stop_sequences", list[str]):
        extra["stop"] = stop
    # Taken out and dropped, so that what is left is what cannot be carried.
    fields.take_raw(*_HINTS)
    fields.refuse(dict.fromkeys(fields.rest(), "this cannot be carried to the models here"))
    params |= side_channel({}, extra)
    return Asked(call=ModelCall(params=Raw(encode(params)), input=items), model=model, stream=stream)


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
                items.append(reasoning(block.thinking))
            case "tool_use":
                # Undecoded: the arguments must be the text that the model wrote.
                arguments = bytes(block.input).decode()
                items.append(
                    item(type="function_call", call_id=block.id, name=block.name, arguments=arguments)
                )
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
    if tool.type not in (None, "custom"):
        raise TaskError(f"tools: the hosted tool '{tool.type}' is not available; define a tool with a schema")
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
