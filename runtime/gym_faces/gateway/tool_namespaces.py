"""Converts tools in namespaces, which engines do not support, to functions with longer names, and back.

A harness groups its tools (Codex: its sub-agents, each MCP server). A call of such a tool is an item with a
``name`` and a ``namespace``, and the harness finds the tool by both. The model and captures see the tool as
``NAMESPACE__NAME``. Source: OpenAI's API reference, "Namespace tools".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from gym_runtime.errors import TaskError
from msgspec import Raw

from gym_faces.gateway.dialect import encode

Names = Mapping[str, tuple[str, str]]
_JOINT = "__"


class _Tool(msgspec.Struct):
    type: str
    name: str = ""
    description: str | None = None
    tools: list[dict[str, Any]] = []


class _Call(msgspec.Struct):
    type: str = ""
    name: str = ""


_decode_tool = msgspec.json.Decoder(_Tool).decode
_decode_call = msgspec.json.Decoder(_Call).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def flatten(tools: list[Raw]) -> tuple[list[Raw], Names]:
    """Tools without namespaces, and the namespace and name of each longer name.

    A namespace's description is put before that of its first tool. Tools without a namespace keep their
    bytes.

    Raises:
        TaskError: a namespace has something else than functions, or two tools would have one name.
        msgspec.DecodeError: an element is not a tool.
    """
    flat: list[Raw] = []
    names: dict[str, tuple[str, str]] = {}
    taken: set[str] = set()

    def add(name: str, tool: Raw) -> None:
        if name in taken:
            raise TaskError(f"tools: two of them would be named '{name}'; rename one")
        # A hosted tool has no name, and there may be several.
        taken.update([name] if name else ())
        flat.append(tool)

    for raw in tools:
        tool = _decode_tool(raw)
        if tool.type != "namespace":
            add(tool.name, raw)
            continue
        for member in _members(tool):
            name = _joined(tool.name, member["name"])
            names[name] = (tool.name, member["name"])
            add(name, Raw(encode({**member, "name": name})))
    return flat, names


def flat_call(raw: Raw) -> Raw:
    """A call with the longer name, as the model made it; calls without a namespace keep their bytes."""
    # A look at the bytes first: nearly no call has one, and decoding each would cost more.
    if b'"namespace"' not in bytes(raw):
        return raw
    fields = _decode_fields(raw)
    namespace = fields.pop("namespace", Raw(b"null"))
    if bytes(namespace) == b"null":
        return raw
    name = _joined(_decode_text(namespace), _decode_text(fields["name"]))
    return Raw(encode({**fields, "name": name}))


def named(output: list[Raw], names: Names) -> list[Raw]:
    """The model's items with the namespaces of their calls."""
    return [_named(raw, names) for raw in output]


def _named(raw: Raw, names: Names) -> Raw:
    call = _decode_call(raw)
    if call.type != "function_call" or call.name not in names:
        return raw
    namespace, name = names[call.name]
    return Raw(encode({**_decode_fields(raw), "name": name, "namespace": namespace}))


def _members(namespace: _Tool) -> list[dict[str, Any]]:
    described = namespace.description
    members: list[dict[str, Any]] = []
    for tool in namespace.tools:
        if tool.get("type") != "function" or not isinstance(tool.get("name"), str):
            raise TaskError(
                f"tools: namespace '{namespace.name}' has a tool of type '{tool.get('type')}'; "
                "only functions with a name can be carried"
            )
        if described:
            tool = {**tool, "description": "\n\n".join([described, *filter(None, [tool.get("description")])])}
            # Only before the first tool.
            described = None
        members.append(tool)
    return members


def _joined(namespace: str, name: str) -> str:
    """The longer name. Namespaces of MCP servers already end with the joint."""
    return namespace.removesuffix(_JOINT) + _JOINT + name
