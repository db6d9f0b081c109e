"""Java's literals in a text, as values: what the arguments of calls in Java syntax stand for.

A text that is not written as its type demands stays a text. Each function takes linear time.
Source: the rules of ``java_type_converter.py`` of the Berkeley Function Calling Leaderboard
(github.com/ShishirPatil/gorilla, Apache-2.0); the code is our own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

KINDS: dict[str, type] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    **dict.fromkeys(("Array", "ArrayList", "Queue", "Stack"), list),
    **dict.fromkeys(("HashMap", "Hashtable"), dict),
    **dict.fromkeys(("char", "String", "any"), str),
    "boolean": bool,
    "Set": set,
}
LISTS = ("Array", "ArrayList")
_DECIMAL = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_INTEGER, _LONG = re.compile(r"-?[0-9]+"), re.compile(r"(-?[0-9]+)[lL]")
_DOUBLE, _FLOAT = re.compile(_DECIMAL), re.compile(f"({_DECIMAL})[fF]")
_ARRAY = re.compile(r"new\s+\w+\[\]\s*\{")
_LIST_OF = re.compile(r"new\s+ArrayList<\w*>\(Arrays\.asList\(")
_LIST_ADDED = re.compile(r"new\s+ArrayList<\w*>\(\)\s*\{\{")
_LIST_EMPTY = re.compile(r"new\s+ArrayList<\w*>\(\)")
_MAP, _MADE, _BLOCK = re.compile(r"new\s+HashMap<"), re.compile(r">\s*\(\)"), re.compile(r"\s*\{\s*\{?")


def value(text: str, kind: str, items: str = "") -> Any:
    """The value of a text for a parameter of a type; ``items`` is the type of a list's elements.

    >>> value("3L", "long"), value("3", "long"), value("new int[]{1, 2}", "Array", "integer")
    (3, '3', [1, 2])
    """
    if kind in ("byte", "short", "integer"):
        return _integer(text) if _INTEGER.fullmatch(text) else text
    if kind == "long":
        return _integer(found[1]) if (found := _LONG.fullmatch(text)) else text
    if kind == "double":
        return float(text) if _DOUBLE.fullmatch(text) else text
    if kind == "float":
        return float(found[1]) if (found := _FLOAT.fullmatch(text)) else text
    if kind == "boolean":
        return text == "true" if text in ("true", "false") else text
    if kind == "Array":
        return _array(text, lambda one: value(one, items) if items else plain_value(one))
    if kind == "ArrayList":
        return _array_list(text, items)
    return _map(text) if kind == "HashMap" else text


def plain_value(text: str) -> Any:
    """The value of a text whose type is not known: a truth value, a quoted text, a number, or the text.

    >>> plain_value('"1"'), plain_value("1"), plain_value("1.5f"), plain_value("x")
    ('1', 1, 1.5, 'x')
    """
    if text in ("true", "false"):
        return text == "true"
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    if found := _LONG.fullmatch(text):
        return _integer(found[1])
    return float(found[1]) if (found := _FLOAT.fullmatch(text)) else number(text)


def number(text: str) -> Any:
    """The number that Python reads in a text; the text itself if it holds no number."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:  # also of an integer with thousands of digits
            continue
    return text


def _integer(text: str) -> Any:
    try:
        return int(text)
    except ValueError:  # thousands of digits
        return text


def _array(text: str, element: Callable[[str], Any]) -> Any:
    begun = _ARRAY.search(text)
    end = text.find("}", begun.end()) if begun else -1
    if begun is None or end < 0 or "\n" in text[begun.end() : end]:
        return text
    return [element(one.strip()) for one in text[begun.end() : end].split(",") if one.strip()]


def _array_list(text: str, items: str) -> Any:
    def element(one: str) -> Any:
        one = one.strip()
        if items in ("char", "String"):
            return one[1:-1]  # whatever its first and last character are
        return value(one, items) if items else plain_value(one)

    begun = _LIST_OF.search(text)
    end = text.find("))", begun.end() + 1) if begun else -1
    if begun and end >= 0 and "\n" not in text[begun.end() : end]:
        return [element(one) for one in text[begun.end() : end].split(",")]
    begun = _LIST_ADDED.search(text)
    end = text.find("}}", begun.end() + 1) if begun else -1
    if begun and end >= 0:
        return [element(one) for one in _arguments(text[begun.end() : end].strip(), "add(")]
    return [] if _LIST_EMPTY.search(text) else text


def _arguments(text: str, call: str) -> list[str]:
    """What stands in the calls' brackets, up to the first bracket that closes."""
    found: list[str] = []
    place = text.find(call)
    while place >= 0:
        start = place + len(call)
        end = text.find(")", start + 1)
        if end < 0:
            break
        if "\n" in text[start:end]:
            place = text.find(call, start)
            continue
        found.append(text[start:end])
        place = text.find(call, end)
    return found


def _map(text: str) -> Any:
    begun = _MAP.search(text)
    made = _MADE.search(text, begun.end()) if begun else None
    if made is None:
        return text
    block = _BLOCK.match(text, made.end())
    end = text.find("}", block.end()) if block else -1
    if block is None or end < 0:
        return {}
    found: dict[str, Any] = {}
    for put in _arguments(text[block.end() : end].strip(), 'put("'):
        key, separator, given = put.partition('",')
        if separator:
            found[key] = plain_value(given.strip())
    return found
