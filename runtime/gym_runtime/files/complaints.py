"""What is wrong with a line of JSON, for a person who edits it: the field, by its path, and the remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from gym_runtime.environment import catalogue

_PATH = re.compile(r" - at `(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_BYTE = re.compile(r"\(byte (\d+)\)$")
_NOT_JSON_NUMBER = re.compile(rb"Infinity\b|NaN\b")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def bad_json(line: bytes, error: str) -> str:
    """What is wrong with a line that is not JSON; ``error`` is the decoder's message."""
    place = _BYTE.search(error)
    if place and (number := _NOT_JSON_NUMBER.match(line, int(place[1]))):
        return f"not JSON: {number[0].decode()} is not a JSON number; use null {place[0]}"
    if error == "Input data was truncated":
        half = ", or has half of a surrogate pair" if _SURROGATE.search(line) else ""
        return f"the line ends before its JSON does{half}"
    return f"not JSON: {error.removeprefix('JSON is malformed: ')}"


def bad_value(line: bytes | str, error: str, fields: Iterable[str] = ()) -> str:
    """What is wrong with a row that is JSON and does not fit: a missing, an unknown or a wrongly typed field.

    ``error`` is the decoder's message. ``fields`` are the names that are known where the error is; they feed
    the "did you mean".
    """
    located = _PATH.search(error)
    path = located["path"] if located else "$"
    what = error[: located.start()] if located else error
    where = path.removeprefix("$").removeprefix(".")
    inside = f" in '{where}'" if where else ""
    if missing := _MISSING.fullmatch(what):
        near = catalogue.nearest(missing[1], [key for key in _keys(line, path) if key not in set(fields)])
        return f"'{missing[1]}' is missing{inside}" + (f"; did you mean your '{near}'?" if near else "")
    if unknown := _UNKNOWN.fullmatch(what):
        hint = catalogue.suggest(unknown[1], list(fields))
        return f"there is no field '{unknown[1]}'{inside}{hint}"
    plain = what[:1].lower() + what[1:].replace("`", "")
    if not where and plain.startswith("expected object"):
        plain += "; a row is one JSON object on one line"
    return f"'{where}': {plain}" if where else plain


def _keys(line: bytes | str, path: str) -> list[str]:
    """The keys of the object at a path such as ``$.options[0]``; none if there is no object."""
    # Python refuses very long integers, and what follows the wrong field may be no JSON.
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        found: Any = json.loads(line, parse_int=str)
        for key, index in _STEP.findall(path):
            found = found[key or int(index)]
        return list(found)
    return []
