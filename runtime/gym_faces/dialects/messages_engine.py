"""Anthropic's Messages API, for engines: a call becomes a request, the message the model's response.

The other end of `messages_api`, with its table of items and blocks. Thinking goes back with its signature,
which is ``encrypted_content`` of the reasoning item; thinking without one stays away. The function
``computer`` is offered as Anthropic's tool of the version that the model knows:

    ==============================  ================================================================
    ``computer_20250124``           one tool ``computer`` with the size of the screen; a beta header
    ``computer_20251124``           the same, for newer models
    ``computer_toolset_20260801``   each action is a tool: ``left_click`` with ``toolset_name``
    ==============================  ================================================================

Source: Anthropic's API reference, "Create a Message", and its client 2.14.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import UNREADABLE, TaskError
from gym_runtime.messages import IncompleteDetails, Response, Usage
from msgspec import Raw

from gym_faces.dialects import computer, side_channel
from gym_faces.dialects.dialect import ForeignAnswer, assistant_message, check_text, item, output_text
from gym_faces.dialects.pieces import decode_fields, encode, identity, present

PATH = "/messages"
VERSION = "2023-06-01"
TOOLSET = "computer_toolset_20260801"
BETAS = {
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20251124": "computer-use-2025-11-24",
    TOOLSET: "",
}
"""The versions of the tool, and the header ``anthropic-beta`` that each needs."""
MAX_TOKENS = 8192
"""Of an answer where neither row nor run says; the API needs a number."""
FIRST = computer.Size(1280, 800)
"""What is said of the screen before the first screenshot."""
_ENDS = {"max_tokens": "max_output_tokens", "model_context_window_exceeded": "max_output_tokens"}


class _Part(msgspec.Struct):
    type: str = "input_text"
    text: str | None = None
    image_url: str | None = None
    filename: str | None = None
    file_data: str | None = None


class _Entry(msgspec.Struct):
    type: str = "message"
    role: str = ""
    content: str | list[_Part] | None = None
    summary: list[_Part] = []
    encrypted_content: str | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[_Part] = ""


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    signature: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")
    toolset_name: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Message(msgspec.Struct):
    content: list[_Block]
    id: str = ""
    model: str = ""
    stop_reason: str | None = None
    usage: _Usage = msgspec.field(default_factory=_Usage)


class _Tool(msgspec.Struct):
    type: str = "function"
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


_decode_entry = msgspec.json.Decoder(_Entry).decode
_decode_message = msgspec.json.Decoder(_Message).decode
_decode_tools = msgspec.json.Decoder(list[_Tool]).decode
_Blocks = list[dict[str, Any]]


# -- the request ----------------------------------------------------------------------------------------


def write_request(call: ModelCall, model: str, extra_body: bytes, tool: str = TOOLSET) -> bytes:
    """The body of ``POST /v1/messages``, with the computer tool of a version.

    Raises:
        TaskError: the row holds what the API cannot carry.
    """
    fields = present(bytes(call.params))
    extra = side_channel.take(fields)
    try:
        said = {name: msgspec.json.decode(raw) for name, raw in fields.items() if name != "tools"}
        tools = _decode_tools(fields["tools"]) if "tools" in fields else []
        conversation = _Conversation(tool)
        if said.get("instructions"):
            conversation.system.append(str(said["instructions"]))
        for raw in call.input:
            conversation.add(_decode_entry(raw))
    except UNREADABLE as error:
        raise TaskError(f"the Messages API cannot carry this row: {error}", stage="model") from error
    body: dict[str, Any] = {
        "model": model or said.get("model"),
        "max_tokens": said.get("max_output_tokens") or MAX_TOKENS,
        "messages": conversation.messages,
        **{name: said[name] for name in ("temperature", "top_p") if name in said},
    }
    if conversation.system:
        body["system"] = "\n\n".join(conversation.system)
    if tools:
        body["tools"] = [_tool(one, tool, conversation.size or FIRST) for one in tools]
        body["tool_choice"] = _choice(said)
    match said.get("reasoning"):
        case {"effort": str(effort)}:
            body["output_config"] = {"effort": effort}
        case _:
            pass
    if (user := said.get("user")) is not None:
        body["metadata"] = {"user_id": user}
    more = dict(extra)
    if (stop := more.pop("stop", None)) is not None:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    return encode({**decode_fields(extra_body), **body, **more})


class _Conversation:
    """Messages so far.

    Attributes:
        system: the texts before them.
        size: of the latest screenshot.
    """

    def __init__(self, tool: str) -> None:
        self.messages: list[dict[str, Any]] = []
        self.system: list[str] = []
        self.size: computer.Size | None = None
        self._toolset = tool == TOOLSET
        self._members: set[str] = set()

    def add(self, entry: _Entry) -> None:
        match entry.type:
            case "message" if entry.role in ("system", "developer"):
                self.system.append("".join(one.text or "" for one in _parts(entry.content)))
            case "message":
                role = "assistant" if entry.role == "assistant" else "user"
                self._say(role, [_block(one) for one in _parts(entry.content) if one.text != ""])
            case "reasoning":
                if entry.encrypted_content:
                    text = "".join(one.text or "" for one in entry.summary)
                    thought = {"type": "thinking", "thinking": text, "signature": entry.encrypted_content}
                    self._say("assistant", [thought])
            case "function_call":
                self._say("assistant", [self._use(entry)])
            case "function_call_output":
                self._say("user", [self._result(entry)])
            case other:
                raise TaskError(f"the Messages API cannot carry an item of type '{other}'", stage="model")

    def _say(self, role: str, blocks: _Blocks) -> None:
        if not blocks:
            return
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": role, "content": blocks})

    def _use(self, entry: _Entry) -> dict[str, Any]:
        given = computer.decoded(entry.arguments)
        used: dict[str, Any] = {"type": "tool_use", "id": entry.call_id, "name": entry.name}
        if entry.name == computer.NAME and self._toolset:
            self._members.add(entry.call_id)
            action = given.pop("action", "screenshot") if given else "screenshot"
            used |= {"name": action, "toolset_name": computer.NAME}
        return {**used, "input": {"arguments": entry.arguments} if given is None else given}

    def _result(self, entry: _Entry) -> dict[str, Any]:
        output = entry.output
        if not isinstance(output, str):
            sizes = [computer.size_of(one.image_url) for one in output if one.image_url]
            self.size = next((one for one in reversed(sizes) if one), self.size)
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": entry.call_id}
        if entry.call_id in self._members:
            result["toolset_name"] = computer.NAME
        return {**result, "content": output if isinstance(output, str) else [_block(one) for one in output]}


def _parts(content: str | list[_Part] | None) -> list[_Part]:
    return [_Part(text=content)] if isinstance(content, str) else content or []


def _block(part: _Part) -> dict[str, Any]:
    if part.image_url is not None:
        return {"type": "image", "source": _source(part.image_url)}
    if part.file_data is not None:
        return {"type": "document", "source": _source(part.file_data), "title": part.filename}
    if part.text is None:
        raise TaskError(f"the Messages API cannot carry a part of type '{part.type}'", stage="model")
    return {"type": "text", "text": part.text}


def _source(url: str) -> dict[str, str]:
    head, comma, data = url.partition(";base64,")
    if not (comma and head.startswith("data:")):
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}


def _tool(tool: _Tool, version: str, size: computer.Size) -> dict[str, Any]:
    if tool.type != "function":
        raise TaskError(
            f"the Messages API has no hosted tool '{tool.type}'; offer it as a function", stage="model"
        )
    if tool.name != computer.NAME:
        schema = tool.parameters or {"type": "object"}
        described = {"description": tool.description} if tool.description else {}
        return {"name": tool.name, **described, "input_schema": schema}
    if version == TOOLSET:
        return {"type": version}
    screen = {"display_width_px": size.width, "display_height_px": size.height}
    return {"type": version, "name": computer.NAME, **screen}


def _choice(said: Mapping[str, Any]) -> dict[str, Any]:
    more = {"disable_parallel_tool_use": True} if said.get("parallel_tool_calls") is False else {}
    match said.get("tool_choice", "auto"):
        case {"name": str(name)}:
            return {"type": "tool", "name": name, **more}
        case "none":
            return {"type": "none"}
        case other:
            return {"type": "any" if other == "required" else "auto", **more}


# -- the answer -----------------------------------------------------------------------------------------


def read_answer(body: bytes, repeated: Mapping[str, Any]) -> Raw:
    """The response object; ``repeated`` is the result of `responses_api.echo`.

    Raises:
        ForeignAnswer: the body holds no message.
    """
    try:
        check_text(body)
        message = _decode_message(body)
    except UNREADABLE as error:
        raise ForeignAnswer(str(error)) from error
    reason = "content_filter" if message.stop_reason == "refusal" else _ENDS.get(message.stop_reason or "")
    usage = message.usage
    cached = usage.cache_read_input_tokens or 0
    read = usage.input_tokens + cached + (usage.cache_creation_input_tokens or 0)
    return Raw(
        encode(
            Response(
                id=f"resp_{message.id.removeprefix('msg_') or identity()}",
                created_at=time.time(),
                model=message.model,
                output=_items(message.content),
                status="incomplete" if reason else "completed",
                incomplete_details=IncompleteDetails(reason=reason) if reason else None,
                usage=msgspec.convert(
                    {
                        "input_tokens": read,
                        "output_tokens": usage.output_tokens,
                        "total_tokens": read + usage.output_tokens,
                        "input_tokens_details": {"cached_tokens": cached},
                    },
                    Usage,
                ),
                **repeated,
            )
        )
    )


def _items(blocks: Sequence[_Block]) -> list[Raw]:
    items: list[Raw] = []
    for place, block in enumerate(blocks):
        match block.type:
            case "text":
                if block.text:
                    items.append(assistant_message([output_text(block.text)]))
            case "thinking":
                summary = [{"type": "summary_text", "text": block.thinking}]
                signed = block.signature or None
                name = f"rs_{identity()}_{place}"
                items.append(item(type="reasoning", id=name, summary=summary, encrypted_content=signed))
            case "tool_use":
                # Undecoded: the arguments must be the text that the model wrote.
                arguments, name = bytes(block.input).decode(), block.name
                if block.toolset_name == computer.NAME:
                    given = computer.decoded(arguments) or {}
                    name, arguments = computer.NAME, encode({"action": block.name, **given}).decode()
                items.append(item(type="function_call", call_id=block.id, name=name, arguments=arguments))
            case other:
                raise ForeignAnswer(f"a block of type '{other[:40]}'")
    return items
