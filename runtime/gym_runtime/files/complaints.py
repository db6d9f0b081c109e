"""What is wrong with a line of JSON, and in which column: complaints for a person who edits the line."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

_PATH = re.compile(r" - at `(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]|\[\.\.\.\]|\[(?P<other>[^\]]*)\]")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`")
_SPACE = re.compile(r"[ \t\r\n]*")
_NOT_JSON_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<bad>-?\bInfinity\b|\bNaN\b)')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Complaint(msgspec.Struct, frozen=True):
    """The fault, and its column in the line."""

    column: int
    what: str


def bad_encoding(line: bytes, error: UnicodeDecodeError) -> Complaint:
    """A line that is not UTF-8."""
    # Columns count characters, the error counts bytes.
    column = len(line[: error.start].decode(errors="replace")) + 1
    return Complaint(column, f"byte 0x{line[error.start]:02x} is not UTF-8; convert the file to UTF-8")


def bad_json(text: str, error: str) -> Complaint:
    """A line that is not JSON; ``error`` is the fast decoder's message, used when Python's accepts it."""
    try:
        json.loads(text)
    except json.JSONDecodeError as found:
        if found.pos >= len(text.rstrip()):
            return Complaint(found.pos + 1, "the line ends before its JSON does")
        return Complaint(found.pos + 1, f"not JSON: {found.msg[:1].lower()}{found.msg[1:]}")
    except RecursionError:
        return Complaint(1, "not JSON: nested too deeply")
    # Strings are matched as well, so that words within them are passed over.
    for match in _NOT_JSON_NUMBER.finditer(text):
        if match["bad"]:
            return Complaint(match.start() + 1, f"not JSON: {match['bad']} is not a JSON number; use null")
    surrogate = _SURROGATE.search(text)
    if surrogate:
        return Complaint(surrogate.start() + 1, "not JSON: half of a surrogate pair in a string")
    return Complaint(1, f"not JSON: {error}")


def bad_value(text: str, error: str, fields: Iterable[str] = ()) -> Complaint:
    """A row that is JSON but does not fit: a missing, an unknown or a wrongly typed field.

    ``fields`` are the names that are known where the error is; they feed the "did you mean".
    """
    located = _PATH.search(error)
    path = located["path"] if located else "$"
    what = error[: located.start()] if located else error
    start = locate(text, path)
    where = path.removeprefix("$").removeprefix(".")
    inside = f" in '{where}'" if where else ""
    missing = _MISSING.fullmatch(what)
    if missing:
        name = missing["name"]
        present = [key for key, _, _ in members(text, start)]
        strangers = [key for key in present if key not in set(fields)]
        near = difflib.get_close_matches(name, strangers, n=1, cutoff=0.6)
        if near:
            column = next(at for key, at, _ in members(text, start) if key == near[0])
            return Complaint(column + 1, f"'{name}' is missing{inside}; did you mean your '{near[0]}'?")
        return Complaint(start + 1, f"'{name}' is missing{inside}")
    unknown = _UNKNOWN.fullmatch(what)
    if unknown:
        name = unknown["name"]
        column = next((at for key, at, _ in members(text, start) if key == name), start)
        near = difflib.get_close_matches(name, list(fields), n=1, cutoff=0.6)
        meant = f"; did you mean '{near[0]}'?" if near else ""
        return Complaint(column + 1, f"there is no field '{name}'{inside}{meant}")
    plain = what[:1].lower() + what[1:].replace("`", "")
    if not where and plain.startswith("expected object"):
        plain += "; a row is one JSON object on one line"
    return Complaint(start + 1, f"'{where}': {plain}" if where else plain)


def locate(text: str, path: str) -> int:
    """The offset in a JSON text of the value at a path such as ``$.options[0].text``.

    Where the path can't be followed to its end, the offset of the last value that was found.

    >>> locate('{"a": [10, 20]}', "$.a[1]")
    11
    """
    at = _skip_space(text, 0)
    for step in _STEP.finditer(path.removeprefix("$")):
        if step["key"] is not None:
            inner = next((value for key, _, value in members(text, at) if key == step["key"]), None)
        elif step["index"] is not None:
            inner = next((v for i, v in enumerate(_elements(text, at)) if i == int(step["index"])), None)
        else:
            inner = None
        if inner is None:
            break
        at = inner
    return at


def members(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """``(key, offset of the key, offset of the value)`` of the object at an offset; none if it isn't one."""
    if text[at : at + 1] != "{":
        return
    at = _skip_space(text, at + 1)
    while text[at : at + 1] == '"':
        key, end = _decode(text, at)
        value = _skip_space(text, _skip_space(text, end) + 1)
        yield str(key), at, value
        at = _skip_space(text, _decode(text, value)[1])
        if text[at : at + 1] != ",":
            return
        at = _skip_space(text, at + 1)


def _elements(text: str, at: int) -> Iterator[int]:
    if text[at : at + 1] != "[":
        return
    at = _skip_space(text, at + 1)
    while at < len(text) and text[at] != "]":
        yield at
        at = _skip_space(text, _decode(text, at)[1])
        if text[at : at + 1] == ",":
            at = _skip_space(text, at + 1)


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _decode(text: str, at: int) -> tuple[Any, int]:
    return _decoder.raw_decode(text, at)


# Numbers stay text: only offsets matter here, and Python refuses to read very long integers.
_decoder = json.JSONDecoder(strict=False, parse_int=str, parse_float=str)
