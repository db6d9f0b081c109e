"""JSON that a model wrote: as a whole, or somewhere in its text. Text that is not JSON is never an error."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec
from gym_runtime.errors import UNREADABLE

READ_CHARS, READ_OBJECTS = 100_000, 200
VAIN_CHARS = 2 * READ_CHARS
"""So many characters of what turns out to be no object are read: objects in each other that are never closed
would be read to the text's end from each of their beginnings."""
_decoder = json.JSONDecoder(parse_int=float, parse_constant=lambda _: None, strict=False)
INVALID = object()
"""What `loads` gives for text that is not JSON."""
_T = TypeVar("_T")
_LIST = re.compile(r"\[\s*+\{")


def decode(text: str | bytes, kind: type[_T], *, strict: bool = True) -> _T | None:
    """The text as a value of this type; if it is not ``strict``, numbers may stand in strings.

    >>> decode(' {"x": 1} ', dict[str, int])
    {'x': 1}
    >>> decode('{"x": 1', dict[str, int])
    """
    try:
        return msgspec.json.decode(text, type=kind, strict=strict)
    except UNREADABLE:
        return None


def list_of_objects(text: str) -> str:
    """The JSON list at the first bracket before an object; empty if that is not JSON. Takes linear time.

    >>> list_of_objects('[1] So: [{"x": "[y]"}].')
    '[{"x": "[y]"}]'
    """
    begins = _LIST.search(text)
    try:
        return text[begins.start() : _decoder.raw_decode(text, begins.start())[1]] if begins else ""
    except (ValueError, RecursionError):
        return ""


def convert(value: object, kind: type[_T]) -> _T | None:
    """A decoded value as a value of this type."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError):
        return None


def loads(text: str) -> Any:
    """The text as Python's `json` reads it, or `INVALID`: ``NaN`` and ``1e400`` are numbers, too.

    Values that a result row cannot hold are invalid: a text with a lone surrogate, an integer of thousands of
    digits, a value that is nested too deeply.

    >>> loads('{"x": Infinity}')
    {'x': inf}
    """
    try:
        value = json.loads(text)
        msgspec.json.encode(value)
    except (ValueError, RecursionError):  # among them UnicodeEncodeError
        return INVALID
    return value


def object_at_the_end(text: str) -> dict[str, Any] | None:
    """The last JSON object of a text that is not within another, if no letter or digit follows it.

    So much of the text's end is searched: else a hostile one would take long. Whole numbers are floats, and
    ``NaN`` is None; strings may hold line breaks.

    >>> object_at_the_end('{"a": 1}? No:\\n```json\\n{"a": {"b": 2}}\\n```')
    {'a': {'b': 2.0}}
    >>> object_at_the_end('{"a": 1} is what it says')
    """
    text = text[-READ_CHARS:]
    found: dict[str, Any] | None = None
    end = vain = 0
    for start in [match.start() for match in re.finditer(r"\{", text)][-READ_OBJECTS:]:
        if start < end:
            continue
        try:
            found, end = _decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            read = len(text) if error.msg.startswith("Unterminated") else error.pos
            vain += read - start
            if vain > VAIN_CHARS:
                return None
        except (ValueError, RecursionError):
            continue
    return None if any(map(str.isalnum, text[end:])) else found
