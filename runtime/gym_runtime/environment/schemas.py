"""JSON schemas of tools' parameters: mistakes that engines refuse, and arguments that satisfy a schema.

The check finds the mistakes that occur in schemas written by hand; engines report others. The arguments are
for engines that only simulate a language model: the same schema gives the same ones, with required properties
only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

import msgspec

JSON_TYPES = {"string", "number", "integer", "boolean", "array", "object", "null"}


def schema_problems(schema: Mapping[str, Any], where: str = "parameters") -> Iterator[str]:
    """The reasons why engines would refuse an object as the JSON schema of a function's parameters."""
    kinds = schema.get("type")
    listed = cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]
    if where == "parameters" and kinds != "object":
        yield f"{where} must be of type object"
    elif not all(kind is None or kind in JSON_TYPES for kind in listed):
        yield f"{where} has the unknown type {kinds!r}"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        yield f"{where}.properties is not an object"
        return
    inner = cast("Mapping[str, Any]", properties)
    missing = [name for name in schema.get("required", ()) if name not in inner]
    if missing:
        yield f"{where} requires {', '.join(map(str, missing))}, which its properties do not describe"
    for name, member in [*inner.items(), *([("[]", schema["items"])] if "items" in schema else [])]:
        if isinstance(member, dict):
            yield from schema_problems(cast("Mapping[str, Any]", member), f"{where}.{name}")
        elif not isinstance(member, bool):
            yield f"{where}.{name} is not a schema"


_STRINGS = {
    "date": "2025-01-01",
    "date-time": "2025-01-01T00:00:00Z",
    "time": "00:00:00",
    "email": "ada@example.com",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_NAMED = {"city": "San Francisco", "location": "San Francisco"}
_MAX_DEPTH = 8


def example(schema: Mapping[str, Any], *, name: str = "", root: Mapping[str, Any] | None = None) -> Any:
    """A value that satisfies the schema, if the schema uses only common keywords.

    >>> example({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
    {'city': 'San Francisco'}
    >>> example({"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 2})
    [3, 3]
    """
    return _example(schema, name, root or schema, 0)


def _example(schema: Mapping[str, Any], name: str, root: Mapping[str, Any], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return None
    if isinstance(ref := schema.get("$ref"), str):
        return _example(_resolve(ref, root), name, root, depth + 1)
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
    for keyword in ("enum", "examples"):
        if schema.get(keyword):
            return schema[keyword][0]
    for keyword in ("anyOf", "oneOf", "allOf"):
        choices = cast("list[dict[str, Any]]", schema.get(keyword) or [])
        if choices:
            chosen = next((choice for choice in choices if choice.get("type") != "null"), choices[0])
            return _example(chosen, name, root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kinds = cast("list[str]", kind)
        kind = next((one for one in kinds if one != "null"), "null")
    match kind:
        case "object":
            properties = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
            required = cast("list[str]", schema.get("required") or [])
            return {key: _example(properties.get(key, {}), key, root, depth + 1) for key in required}
        case "array":
            item = cast("dict[str, Any]", schema.get("items") or {})
            return [_example(item, name, root, depth + 1)] * int(schema.get("minItems", 1))
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _string(schema, name)


def _resolve(ref: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for key in ref.removeprefix("#/").split("/"):
        found = cast("Mapping[str, Any]", found).get(key, {})
    return cast("Mapping[str, Any]", found)


def _number(schema: Mapping[str, Any]) -> float:
    if "minimum" in schema:
        return schema["minimum"]
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + 1
    return min(1, schema.get("maximum", 1))


def _string(schema: Mapping[str, Any], name: str) -> str:
    text = _STRINGS.get(schema.get("format", "")) or _NAMED.get(name) or name or "text"
    return text.ljust(int(schema.get("minLength", 0)), "x")[: int(schema.get("maxLength", len(text) + 64))]


class ToolHead(msgspec.Struct, frozen=True):
    """The fields of a function tool that a call needs, in the Responses or the Chat format."""

    name: str = ""
    parameters: dict[str, Any] | None = None
    function: ToolHead | None = None


_decode_tool = msgspec.json.Decoder(ToolHead).decode


@lru_cache(maxsize=1024)
def example_call(tool: bytes) -> tuple[str, str]:
    """The name of a tool, in either format, and arguments that satisfy its schema, as JSON text."""
    head = _decode_tool(tool)
    head = head.function or head
    arguments = example(head.parameters or {"type": "object"})
    return head.name, msgspec.json.encode(arguments if isinstance(arguments, dict) else {}).decode()
