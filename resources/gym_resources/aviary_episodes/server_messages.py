"""What an Aviary server's messages and tools are here, and what a model's calls are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from gym_runtime import Reply
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import FunctionCall

from gym_resources.aviary_episodes.task_server import ServerMessage, ServerTool

INVALID = "INVALID"
"""The library's name for a call that fits no tool."""
NAME_CHARACTERS = 200
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


class _Property(msgspec.Struct):
    type: Any = None


class _Schema(msgspec.Struct):
    properties: dict[str, _Property]
    required: list[str] = []


_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def action(reply: Reply, tools: dict[str, ServerTool]) -> dict[str, Any]:
    """A model's answer as the protocol has it."""
    calls = [called(call, tools.get(call.name)) for call in reply.function_calls]
    if not calls:
        return {"role": "assistant", "content": reply.text}
    return {"role": "assistant", "content": reply.text or None, "tool_calls": calls}


def definition(tool: ServerTool) -> dict[str, Any]:
    """A server's tool as a function tool of the Responses API."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
        "strict": False,
    }


def read(message: ServerMessage) -> list[dict[str, Any]]:
    """A message as items: what is not the system's or the assistant's own is the user's."""
    if message.role in ("system", "assistant"):
        return [{"role": message.role, "content": message.text}]
    return shown(message.images, message.text) if message.images else [user(message.text)]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def shown(images: Sequence[str], text: str = "") -> list[dict[str, Any]]:
    """Images as a user's message; nothing without images."""
    if not images:
        return []
    parts: list[dict[str, Any]] = [{"type": "input_text", "text": text}] if text else []
    parts += [{"type": "input_image", "image_url": url, "detail": "auto"} for url in images]
    return [{"role": "user", "content": parts}]


def called(call: FunctionCall, tool: ServerTool | None) -> dict[str, Any]:
    """A call as the protocol has it. What cannot be a call of its tool is one of `INVALID`.

    Without this an environment may raise at what a model wrote, and a failure spares a rollout its reward.
    """
    name, arguments = call.name[:NAME_CHARACTERS], "{}"
    if tool is not None:
        given = _object(call.arguments)
        fits = given is not None and fitting(given, tool.parameters or {})
        name, arguments = (name, call.arguments) if fits else (INVALID, "{}")
    return {"id": call.call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def fitting(given: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Whether arguments have the names that a schema asks for, and values of its plain types."""
    try:
        wanted = msgspec.convert(schema, _Schema)
    except msgspec.ValidationError:
        return True  # a schema of another kind
    if not set(wanted.required) <= set(given) <= set(wanted.properties):
        return False
    return all(_is_a(value, wanted.properties[name].type) for name, value in given.items())


def _is_a(value: object, kind: object) -> bool:
    kinds = _JSON_TYPES.get(kind) if isinstance(kind, str) else None
    return kinds is None or (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)))


def _object(text: str) -> dict[str, Any] | None:
    try:
        return _decode_object(text)
    except UNREADABLE:
        return None
