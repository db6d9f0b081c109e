"""Gemini's forms: the names of fields in one case, the schemas of functions as JSON Schema."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec
from gym_runtime.errors import UNREADABLE, TaskError

from gym_faces.dialects.dialect import check_objects
from gym_faces.dialects.pieces import encode

_SNAKE = re.compile(rb'"[a-z]+(_[a-z]+)+"\s*:')
_FREE = {
    *(
        "args",
        "response",
        "parameters",
        "parametersJsonSchema",
        "responseSchema",
        "responseJsonSchema",
        "labels",
    )
}
"""What is a user's own below these names stays as it is."""
_SCHEMA_HINTS = ("nullable", "propertyOrdering", "example")
_DEPTH = 40
"""Of a schema; deeper ones are refused."""


def camel(body: bytes) -> bytes:
    """A body with its names in camel case: Google's API takes both cases, and its clients send a mixture.

    Raises:
        TaskError: it is no JSON, or too large.
    """
    check_objects(body)
    if not _SNAKE.search(body):
        return body

    def renamed(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(renamed, cast("list[Any]", value)))
        if not isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for name, one in cast("dict[str, Any]", value).items():
            first, *words = name.split("_")
            name = first + "".join(map(str.title, words))
            found[name] = one if name in _FREE else renamed(one)
        return found

    try:
        return encode(renamed(msgspec.json.decode(body)))
    except UNREADABLE as error:
        raise TaskError(f"the body is no JSON: {error}") from error


def json_schema(theirs: Any, depth: int = 0) -> Any:
    """Gemini's form of a schema, whose types are in capitals, as JSON Schema."""
    if depth > _DEPTH:
        raise TaskError(f"a schema is deeper than {_DEPTH}")
    if not isinstance(theirs, dict):
        return theirs
    given = cast("dict[str, Any]", theirs)
    ours = {name: value for name, value in given.items() if name not in _SCHEMA_HINTS}
    if isinstance(kind := given.get("type"), str):
        ours["type"] = [kind.lower(), "null"] if given.get("nullable") is True else kind.lower()
    if isinstance(properties := given.get("properties"), dict):
        named = cast("dict[str, Any]", properties)
        ours["properties"] = {name: json_schema(one, depth + 1) for name, one in named.items()}
    if isinstance(choices := given.get("anyOf"), list):
        ours["anyOf"] = [json_schema(one, depth + 1) for one in cast("list[Any]", choices)]
    inner = ("items", "additionalProperties")
    return ours | {name: json_schema(given[name], depth + 1) for name in inner if name in given}
