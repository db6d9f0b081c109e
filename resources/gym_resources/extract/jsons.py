"""JSON that a model wrote: as a whole, or somewhere in its text. What is none is None, never an error."""

from __future__ import annotations

from typing import TypeVar

import msgspec

_T = TypeVar("_T")


def decode(text: str | bytes, kind: type[_T], *, strict: bool = True) -> _T | None:
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
