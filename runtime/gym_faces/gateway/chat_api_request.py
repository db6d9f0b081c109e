"""Chat Completions → Responses API: a client's request as the conversation and parameters of a call.

    ====================================  ========================================================
    system, developer, user               a message with that role; parts become ``input_*`` parts
    assistant                             reasoning (``reasoning_content``), message, function calls
    tool                                  ``function_call_output``
    ====================================  ========================================================

A message's ``name`` is a hint, and is dropped. Sampling settings that the Responses API does not have
(``seed``, ``stop``, penalties, an engine's own) are passed on to the engine in ``metadata.extra_body``.
Source: OpenAI's API reference.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from gym_runtime.errors import UNREADABLE, TaskError
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

_SAME = (
    *("temperature", "top_p", "user", "service_tier", "store", "parallel_tool_calls", "safety_identifier"),
    "prompt_cache_key",
)
_REFUSED = {
    "functions": "use 'tools'",
    "function_call": "use 'tool_choice'",
    "audio": "the models here answer in text",
    "prediction": "predicted outputs cannot be carried",
    "web_search_options": "there are no hosted tools here; give your own as functions",
    "top_logprobs": "log-probabilities are not given to clients; they are captured with the tokens",
}


class _Function(msgspec.Struct):
    name: str
    arguments: str = "{}"


class _Call(msgspec.Struct):
    id: str
    function: _Function | None = None
    type: str = "function"


class _Message(msgspec.Struct):
    role: str
    content: Raw = Raw(b"null")
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None
    audio: dict[str, Any] | None = None


class _Image(msgspec.Struct):
    url: str
    detail: str | None = None


class _Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: _Image | None = None
    input_audio: dict[str, Any] | None = None
    file: dict[str, Any] | None = None


class _Definition(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Tool(msgspec.Struct):
    type: str
    function: _Definition | None = None


class _Named(msgspec.Struct):
    name: str


class _AllowedTool(msgspec.Struct):
    function: _Named


class _Allowed(msgspec.Struct):
    mode: str = "auto"
    tools: list[_AllowedTool] = []


class _Choice(msgspec.Struct):
    type: str
    function: _Named | None = None
    allowed_tools: _Allowed | None = None


class _Format(msgspec.Struct):
    type: str
    json_schema: dict[str, Any] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


def read(body: bytes) -> Asked:
    """A body of ``POST /chat/completions``.

    Raises:
        TaskError: it is invalid, or has a field that cannot be carried; the message names the field.
    """
    fields = Fields(body)
    fields.refuse(_REFUSED)
    if fields.take("n", int, 1) != 1:
        raise TaskError("n: one answer per call; make several calls for several answers")
    if fields.take("logprobs", bool, False):
        raise TaskError(f"logprobs: {_REFUSED['top_logprobs']}")
    if fields.take("modalities", list[str], ["text"]) != ["text"]:
        raise TaskError("modalities: the models here answer in text")
    model = fields.take("model", str, "")
    stream = fields.take("stream", bool, False)
    options: _StreamOptions | None = fields.take("stream_options", _StreamOptions)
    items = _items(fields.require("messages", Annotated[list[_Message], Meta(max_length=MAX_ITEMS)]))
    params = fields.take_raw(*_SAME)
    # The newer name comes second, so that it wins.
    for name in ("max_tokens", "max_completion_tokens"):
        if (limit := fields.take(name, int)) is not None:
            params["max_output_tokens"] = limit
    if tools := fields.take("tools", list[_Tool]):
        params["tools"] = [_tool(tool) for tool in tools]
    if (choice := fields.take("tool_choice", str | _Choice)) is not None:
        params["tool_choice"] = choice if isinstance(choice, str) else _choice(choice)
    if (effort := fields.take("reasoning_effort", str)) is not None:
        params["reasoning"] = {"effort": effort}
    text: dict[str, Any] = fields.take_raw("verbosity")
    if (wanted := fields.take("response_format", _Format)) is not None:
        text["format"] = {"type": wanted.type, **(wanted.json_schema or {})}
    if text:
        params["text"] = text
    params |= side_channel(fields.take("metadata", dict[str, str], {}), fields.rest())
    return Asked(
        call=ModelCall(params=Raw(encode(params)), input=items),
        model=model,
        stream=stream,
        include_usage=options is not None and options.include_usage,
    )


def _items(messages: list[_Message]) -> list[Raw]:
    items: list[Raw] = []
    for place, message in enumerate(messages):
        try:
            items += _item(message)
        except (TaskError, *UNREADABLE) as error:
            raise TaskError(f"messages[{place}]: {error}") from error
    return items


def _item(message: _Message) -> list[Raw]:
    match message.role:
        case "system" | "developer" | "user":
            return [item(role=message.role, content=_content(message.content))]
        case "assistant":
            return _assistant(message)
        case "tool":
            if not message.tool_call_id:
                raise TaskError("tool_call_id: this field is required")
            output = _content(message.content)
            return [item(type="function_call_output", call_id=message.tool_call_id, output=output)]
        case "function":
            raise TaskError("role: 'function' is deprecated; use 'tool' with a 'tool_call_id'")
        case other:
            raise TaskError(f"role: '{other}' is unknown; use system, developer, user, assistant or tool")


def _assistant(message: _Message) -> list[Raw]:
    if message.function_call:
        raise TaskError("function_call: use 'tool_calls'")
    if message.audio:
        raise TaskError("audio: an answer in sound cannot be carried")
    items: list[Raw] = []
    if thought := message.reasoning_content or message.reasoning:
        items.append(reasoning(thought))
    parts = [output_text(text) for text in _assistant_texts(message.content)]
    if message.refusal:
        parts.append({"type": "refusal", "refusal": message.refusal})
    # A message that only makes calls has no text, and so needs no item of its own.
    if parts:
        items.append(assistant_message(parts))
    for call in message.tool_calls or ():
        if call.type != "function" or call.function is None:
            raise TaskError(f"tool_calls: a call of type '{call.type}' cannot be carried, only functions")
        function = call.function
        items.append(
            item(type="function_call", call_id=call.id, name=function.name, arguments=function.arguments)
        )
    return items


def _assistant_texts(content: Raw) -> list[str]:
    decoded: str | list[_Part] | None = _decode_content(content)
    if decoded is None or isinstance(decoded, str):
        return [decoded] if decoded else []
    texts: list[str] = []
    for part in decoded:
        text = part.refusal if part.type == "refusal" else part.text
        if text is None:
            raise TaskError(f"content: an assistant's part of type '{part.type}' cannot be carried")
        texts.append(text)
    return texts


_decode_content = msgspec.json.Decoder[str | list[_Part] | None](str | list[_Part] | None).decode


def _content(content: Raw) -> str | list[dict[str, Any]]:
    decoded = _decode_content(content)
    if decoded is None:
        raise TaskError("content: this field is required")
    return decoded if isinstance(decoded, str) else [_part(part) for part in decoded]


def _part(part: _Part) -> dict[str, Any]:
    match part:
        case _Part(type="text", text=str(text)):
            return {"type": "input_text", "text": text}
        case _Part(type="image_url", image_url=_Image(url=url, detail=detail)):
            # The Responses API needs a detail.
            return {"type": "input_image", "image_url": url, "detail": detail or "auto"}
        case _Part(type="input_audio", input_audio=dict(audio)):
            return {"type": "input_audio", "input_audio": audio}
        case _Part(type="file", file=dict(file)):
            return {"type": "input_file", **file}
        case _:
            raise TaskError(f"content: a part of type '{part.type}' that lacks its content or is unknown")


def _tool(tool: _Tool) -> dict[str, Any]:
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


def _choice(choice: _Choice) -> dict[str, Any]:
    if choice.type == "function" and choice.function:
        return {"type": "function", "name": choice.function.name}
    if choice.type == "allowed_tools" and choice.allowed_tools:
        allowed = choice.allowed_tools
        tools = [{"type": "function", "name": tool.function.name} for tool in allowed.tools]
        return {"type": "allowed_tools", "mode": allowed.mode, "tools": tools}
    raise TaskError(f"tool_choice: '{choice.type}' cannot be carried")
