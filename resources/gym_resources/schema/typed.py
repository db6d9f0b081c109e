"""Types for what a format writes as text, taken from the schema: ``<year>1788</year>`` is a number if that
is what the schema wants there, and stays a text if not.

What does not fit the schema is left as it is; that it does not fit is for the validator to say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

MISFIT = object()
_INTEGER = re.compile(r"[+-]?\d{1,1000}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_SEPARATOR = re.compile(r"[;|]")
_NULL_MARKS = {"@is_null", "@null", "@nil", "@xsi:nil"}

Cast = Callable[[Any, Mapping[str, Any]], Any]


def typed(value: Any, schema: object) -> Any:
    """A value with the types that the schema gives to its parts.

    >>> typed({"year": "1788", "names": {"name": ["A", "B"]}},
    ...       {"type": "object", "properties": {"year": {"type": "integer"}, "names": {"type": "array"}}})
    {'year': 1788, 'names': ['A', 'B']}
    """
    options = sorted(_options(schema), key=lambda option: _ORDER.index(option[0]))
    for kind, option in options:
        found = _CASTS[kind](value, option)
        if found is not MISFIT:
            return found
    return value


def typed_document(document: dict[str, Any], schema: Mapping[str, Any]) -> Any:
    """An XML document: its root is only a name, unless it is the one property of the schema."""
    (name, content) = next(iter(document.items()))
    if list(_mapping(schema.get("properties"))) == [name]:
        return typed(document, schema)
    return typed(content, schema)


def typed_cell(cell: str, schema: object, column: str) -> Any:
    """A cell of CSV: JSON where the schema has a list or an object, or a list with ``;`` or ``|`` between."""
    kinds = {
        kind
        for _, option in _options(schema)
        for kind, _ in _options(_mapping(option.get("properties")).get(column))
    }
    if not kinds & {"array", "object"} or not cell.strip():
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return [part.strip() for part in _SEPARATOR.split(cell)] if "array" in kinds else cell


def _options(schema: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The types that a schema allows, each with the schema that says the rest."""
    given = _mapping(schema)
    kinds = given.get("type")
    listed = cast("list[object]", kinds) if isinstance(kinds, list) else [kinds]
    yield from ((kind, given) for kind in listed if isinstance(kind, str) and kind in _CASTS)
    for keyword in ("anyOf", "oneOf", "allOf"):
        branches = given.get(keyword)
        for branch in cast("list[object]", branches) if isinstance(branches, list) else ():
            yield from _options(branch)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _null(value: Any, _: Mapping[str, Any]) -> Any:
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "null")):
        return None
    marks = _mapping(value)
    marked = bool(marks) and marks.keys() <= _NULL_MARKS and all(mark == "true" for mark in marks.values())
    return None if marked else MISFIT


def _integer(value: Any, _: Mapping[str, Any]) -> Any:
    return int(value) if isinstance(value, str) and _INTEGER.fullmatch(value.strip()) else MISFIT


def _number(value: Any, _: Mapping[str, Any]) -> Any:
    if not isinstance(value, str) or not _NUMBER.fullmatch(value.strip()):
        return MISFIT
    return int(value) if _INTEGER.fullmatch(value.strip()) else float(value)


def _boolean(value: Any, _: Mapping[str, Any]) -> Any:
    return (
        {"true": True, "false": False}.get(value.strip().lower(), MISFIT)
        if isinstance(value, str)
        else MISFIT
    )


def _array(value: Any, schema: Mapping[str, Any]) -> Any:
    """A list: repeated elements, the children of an element that holds only them, or a single one."""
    items = schema.get("items")
    if value is None or value == "":
        return []
    children = _mapping(value)
    properties = {name for _, option in _options(items) for name in _mapping(option.get("properties"))}
    if len(children) == 1 and not children.keys() <= properties:
        (value,) = children.values()
    if value is None:
        return [typed(None, items)]
    elements = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [typed(element, items) for element in elements]


def _object(value: Any, schema: Mapping[str, Any]) -> Any:
    if value is None or value == "":
        return {}
    if not isinstance(value, dict):
        return MISFIT
    properties = _mapping(schema.get("properties"))
    return {
        name: typed(part, properties.get(name))
        for name, part in cast("Mapping[str, Any]", value).items()
        if not name.startswith("@xmlns")
    }


def _string(value: Any, _: Mapping[str, Any]) -> Any:
    return "" if value is None else value if isinstance(value, str) else MISFIT


_CASTS: dict[str, Cast] = {
    "null": _null,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "array": _array,
    "object": _object,
    "string": _string,
}
_ORDER = list(_CASTS)
