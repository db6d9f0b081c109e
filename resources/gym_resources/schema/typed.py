"""Types for what a format writes as text, taken from the schema: ``<year>1788</year>`` is a number if the
schema has a number there, and stays a text if not.

Numbers are what Python's ``int`` and ``float`` read, and ``1`` and ``0`` are booleans, too. A value that does
not fit the schema stays unchanged; the validator reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def typed(value: Any, schema: object) -> Any:
    """A parsed element of XML with the types that the schema gives to its parts.

    Nothing is converted where the type is a list of types, or stands under ``anyOf`` and the like. An empty
    element is an empty text or list where the type is ``string`` or ``array``. Under an array, elements that
    repeat are a list, a single one is a list of one, and one that holds only one kind of elements stands for
    these, whatever their name.

    >>> typed({"year": "1788", "names": {"name": ["A", "B"]}},
    ...       {"type": "object", "properties": {"year": {"type": "integer"}, "names": {"type": "array"}}})
    {'year': 1788, 'names': ['A', 'B']}
    """
    given = _mapping(schema)
    kind = given.get("type")
    convert = _CONVERSIONS.get(kind) if isinstance(kind, str) else None
    return convert(value, given) if convert else value


def typed_cell(cell: str, schema: object) -> Any:
    """A cell of CSV as the first scalar type of the schema that it can be; lists and objects are not read.

    An empty cell is null if the schema allows null; the text ``null`` is a text.

    >>> typed_cell("12", {"type": ["number", "null"]})
    12.0
    """
    kinds = set(_kinds(schema))
    if not cell and "null" in kinds:
        return None
    for kind in ("integer", "number", "boolean"):
        if kind in kinds:
            value = _CONVERSIONS[kind](cell, {})
            if not isinstance(value, str):
                return value
    return cell


def _kinds(schema: object) -> Iterator[object]:
    """The types that a schema allows."""
    given = _mapping(schema)
    kinds = given.get("type")
    yield from cast("list[object]", kinds) if isinstance(kinds, list) else [kinds]
    for keyword in ("anyOf", "oneOf"):
        branches = given.get(keyword)
        for branch in cast("list[object]", branches) if isinstance(branches, list) else ():
            yield from _kinds(branch)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _number(read: Callable[[str], float]) -> Callable[[Any, Mapping[str, Any]], Any]:
    def number(value: Any, _: Mapping[str, Any]) -> Any:
        try:
            return read(value) if isinstance(value, str) else value
        except ValueError:
            return value

    return number


def _boolean(value: Any, _: Mapping[str, Any]) -> Any:
    return _BOOLEANS.get(value.strip().lower(), value) if isinstance(value, str) else value


def _array(value: Any, schema: Mapping[str, Any]) -> Any:
    if value is None:
        return []
    children = _mapping(value)
    if len(children) == 1:
        (value,) = children.values()
    elements = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [typed(element, schema.get("items")) for element in elements]


def _object(value: Any, schema: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    properties = _mapping(schema.get("properties"))
    return {name: typed(part, properties.get(name)) for name, part in cast("dict[str, Any]", value).items()}


def _string(value: Any, _: Mapping[str, Any]) -> Any:
    return "" if value is None else value


_CONVERSIONS: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "integer": _number(int),
    "number": _number(float),
    "boolean": _boolean,
    "array": _array,
    "object": _object,
    "string": _string,
}
