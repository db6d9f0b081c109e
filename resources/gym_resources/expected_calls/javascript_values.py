"""JavaScript's literals in a text, as values: what the arguments of calls in its syntax stand for.

A text that is not written as its type demands stays a text. Objects and lists end at the first bracket that
closes, as in the source's rules, so nothing within them has brackets of the same kind, except lists of lists.
Each function takes linear time.
Source: the rules of ``js_type_converter.py`` of the Berkeley Function Calling Leaderboard
(github.com/ShishirPatil/gorilla, Apache-2.0); the code is our own.
"""

from __future__ import annotations

import re
from typing import Any

from gym_resources.expected_calls.java_values import number

KINDS: dict[str, type] = {
    "String": str,
    "any": str,
    "integer": int,
    "Bigint": int,
    "float": float,
    "Boolean": bool,
    "dict": dict,
    "array": list,
}
LISTS = ("array",)
_PATTERNS = {
    "integer": re.compile(r"(-?[0-9]+)"),
    "float": re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)"),
    "Bigint": re.compile(r"(-?[0-9]+)n"),
}
_LIST, _LISTS = re.compile(r"\[|new\s+Array\("), re.compile(r"(?:\[|new\s+Array\()\s*(?=\[)")
_NEXT = re.compile(r"\s*(,\s*\[|[\])])")


def value(text: str, kind: str, items: str = "") -> Any:
    """The value of a text for a parameter of a type; ``items`` is the type of a list's elements.

    >>> value("10n", "Bigint"), value("[1, 2]", "array", "integer"), value("{a: 'b', c: 1}", "dict")
    (10, [1, 2], {'a': 'b', 'c': 1})
    """
    if kind == "String":
        return text[1:-1] if _quoted(text) else text
    if kind in _PATTERNS:
        found = _PATTERNS[kind].fullmatch(text)
        try:
            return text if found is None else KINDS[kind](found[1])
        except ValueError:  # thousands of digits
            return text
    if kind == "Boolean":
        return text == "true" if text in ("true", "false") else text
    if kind == "array":
        return _list(text.strip(), items)
    return _object(text.strip()) if kind == "dict" else text


def plain_value(text: str) -> Any:
    """The value of a text whose type is not known.

    >>> plain_value("'1'"), plain_value("1"), plain_value("true"), plain_value("x")
    ('1', 1, True, 'x')
    """
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    return text[1:-1] if _quoted(text) else number(text)


def _quoted(text: str) -> bool:
    return any(text.startswith(mark) and text.endswith(mark) for mark in "\"'")


def _list(text: str, items: str = "") -> Any:
    found = _list_of_lists(text)
    if found is not None:
        return found
    begun = _LIST.match(text)
    if begun is None:
        return text
    end = text.find(")" if begun[0].endswith("(") else "]", begun.end())
    inside = text[begun.end() : end].strip()
    if end < 0 or "\n" in inside:
        return text
    elements = [one.strip() for one in inside.split(",")] if inside else []
    return [value(one, items) if items else plain_value(one) for one in elements]


def _list_of_lists(text: str) -> list[Any] | None:
    begun = _LISTS.match(text)
    found: list[Any] = []
    place = begun.end() + 1 if begun else -1
    while place > 0:
        end = text.find("]", place)
        if end < 0 or "\n" in text[place:end]:
            return None
        found.append([plain_value(one) for one in text[place:end].split(",")])
        following = _NEXT.match(text, end + 1)
        if following is None:
            return None
        if not following[1].startswith(","):
            return found
        place = following.end()
    return None


def _object(text: str) -> Any:
    if text == "{}":
        return {}
    end = text.find("}")
    if not text.startswith("{") or end < 0 or "\n" in text[:end]:
        return text
    found: dict[str, Any] = {}
    for pair in _pairs(text[1:end]):
        key, separator, given = pair.partition(":")
        given = given.strip()
        if not separator or not key:
            continue
        if given.startswith("[") and given.endswith("]"):
            found[key.strip().strip("'\"")] = _list(given)
        else:
            found[key.strip().strip("'\"")] = plain_value(given.strip("'\""))
    return found


def _pairs(text: str) -> list[str]:
    """The parts of an object: a comma separates two if a colon follows before the next comma."""
    found: list[str] = []
    for part in text.split(","):
        if found and (":" not in part[1:] or ":" not in found[-1]):
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found
