"""The tools that an MCP server lists, as models may be given them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from gym_runtime import ResourceError
from gym_runtime.errors import UNREADABLE
from msgspec import Raw

MAX_SCHEMA_BYTES = 64 * 2**10
MAX_DESCRIPTION_CHARS = 4000
_CONTROL = re.compile(r"[^\S\n\t ]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069]")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class McpTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the server lists it; its schema is a JSON schema without references to elsewhere."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}


class Listed(msgspec.Struct):
    """A tool, as it comes."""

    name: str
    description: str | None = None
    schema: Raw = msgspec.field(name="inputSchema", default=Raw(b"{}"))


def cleaned(text: str, chars: int) -> str:
    """A foreign text without control and invisible characters, cut to a length."""
    shown = _CONTROL.sub(" ", text[:chars])
    return shown if len(text) <= chars else f"{shown}…"


def checked(server: str, listed: Listed) -> McpTool:
    """A tool of a server.

    Raises:
        ResourceError: its schema is not one that models can be given.
    """
    where = f"{server}: the tool '{cleaned(listed.name, 100)}'"
    if len(bytes(listed.schema)) > MAX_SCHEMA_BYTES:
        raise ResourceError(f"{where} has a schema of more than {MAX_SCHEMA_BYTES >> 10} KiB")
    try:
        schema = _decode_object(listed.schema)
    except UNREADABLE as error:
        raise ResourceError(f"{where} has no object as its schema: {error}") from error
    if any(not ref.startswith("#") for ref in _references(schema)):
        raise ResourceError(f"{where} has a schema that refers to elsewhere")
    description = cleaned(listed.description or "", MAX_DESCRIPTION_CHARS)
    return McpTool(name=listed.name, description=description, schema={"type": "object", **schema})


def _references(value: object) -> list[str]:
    found: list[str] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            fields = cast("dict[str, Any]", one)
            if isinstance(ref := fields.get("$ref"), str):
                found.append(ref)
            waiting += fields.values()
        elif isinstance(one, list):
            waiting += cast("list[Any]", one)
    return found


def model_names(tools: Sequence[McpTool]) -> dict[str, McpTool]:
    """The tools by names that models' APIs accept.

    Raises:
        ResourceError: two have the same.
    """
    found: dict[str, McpTool] = {}
    for tool in tools:
        name = _NOT_IN_A_NAME.sub("_", tool.name)[:64]
        if not name or name in found:
            raise ResourceError(f"the server lists two tools of the name '{name}', or one without a name")
        found[name] = tool
    return found
