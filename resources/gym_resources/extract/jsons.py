"""JSON that a model wrote: as a whole, or somewhere in its text. What is none is None, never an error."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")

_OBJECTS = re.compile(r"\[\s*\{")
_scan = json.JSONDecoder().raw_decode


def decode(text: str, kind: type[_T], *, strict: bool = True) -> _T | None:
    """The text as a value of this type; if it is not ``strict``, numbers may stand in strings.

    >>> decode(' {"x": 1} ', dict[str, int])
    {'x': 1}
    >>> decode('{"x": 1', dict[str, int])
    """
    try:
        return msgspec.json.decode(text, type=kind, strict=strict)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def convert(value: object, kind: type[_T]) -> _T | None:
    """A decoded value as a value of this type."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError):
        return None


def first_objects(text: str) -> list[Any] | None:
    """The list that opens where the text first has a list of objects; None if it is cut off or broken.

    >>> first_objects('Here: [1], [{"x": 1}], [{"x": 2}]')
    [{'x': 1}]
    >>> first_objects('Here: [{"x": 1, ...}]. I mean [{"x": 2}].')
    """
    start = _OBJECTS.search(text)
    if start is None:
        return None
    try:
        return _scan(text, start.start())[0]
    except (ValueError, RecursionError):
        return None
