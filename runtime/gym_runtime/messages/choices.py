"""The values of a choice, for errors: msgspec names the wrong value, and not the possible ones."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec.inspect as types

_WRONG = re.compile(r"Invalid enum value .*?(?: - at `\$(?P<path>[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[[^\]]*\]")


def choices(message: object, kind: object) -> str:
    """``; there are: x, y`` where msgspec's message says that a choice does not have a value; else empty.

    Args:
        kind: the type that was decoded or converted to.

    >>> from typing import Literal
    >>> choices("Invalid enum value 'c' - at `$[...]`", list[Literal["a", "b"]])
    '; there are: a, b'
    """
    wrong = _WRONG.fullmatch(str(message))
    if wrong is None:
        return ""
    found = list(_alternatives(types.type_info(kind)))
    for step in _STEP.finditer(wrong["path"] or ""):
        inner = [part for one in found for part in _within(one, step["name"])]
        found = [one for part in inner for one in _alternatives(part)]
    values = [str(value) for one in found if isinstance(one, types.LiteralType) for value in one.values]
    return f"; there are: {', '.join(dict.fromkeys(values))}" if values else ""


def _alternatives(kind: types.Type) -> Iterator[types.Type]:
    """A type, or the types of a union, without what is said of them beside."""
    if isinstance(kind, types.UnionType):
        for one in kind.types:
            yield from _alternatives(one)
    elif isinstance(kind, types.Metadata):
        yield from _alternatives(kind.type)
    else:
        yield kind


def _within(kind: types.Type, name: str | None) -> Iterator[types.Type]:
    """The types of a type's field of this name, or of its items."""
    if isinstance(kind, types.StructType | types.DataclassType | types.TypedDictType):
        yield from (field.type for field in kind.fields if field.encode_name == name)
    elif isinstance(kind, types.DictType):
        yield kind.value_type
    elif isinstance(kind, types.ListType | types.VarTupleType):
        yield kind.item_type
