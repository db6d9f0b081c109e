"""Checks JSON schemas of tools' parameters for mistakes that engines refuse.

It finds the mistakes that occur in schemas written by hand; engines report others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

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
