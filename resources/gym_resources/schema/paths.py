"""Whether a value has the part that a path names, such as ``novel.chapters[1].title`` or ``csv::price``."""

from __future__ import annotations

import re
from typing import Any, cast

BEGIN, END = "<|BEGIN_CODE|>", "<|END_CODE|>"
LONGEST = 1000
_FENCE = re.compile(r"^[ \t]*+```[^\n`]*+$", re.MULTILINE)
_INDEX = re.compile(r"\[(\d{1,6}|\*)\]")


def code(text: str) -> str:
    """The code in a text: between its marks, else in the last fenced block, else all of it.

    >>> code("<|BEGIN_CODE|>a: 1<|END_CODE|>"), code("So:\\n```yaml\\na: 1\\n```"), code("a: 1")
    ('a: 1', 'a: 1\\n', 'a: 1')
    """
    start = text.rfind(BEGIN)
    if start >= 0:
        text = text[start + len(BEGIN) :].partition(END)[0]
    fences = list(_FENCE.finditer(text))
    if len(fences) >= 2:
        opening, closing = fences[-2:]
        return text[opening.end() + 1 : closing.start()]
    return text


def holds(value: Any, path: str, *, rootless: bool = False) -> bool:
    """Whether the path leads to something; with ``rootless`` also from below the only key of an object.

    >>> holds({"a": [{"b.c": 1}]}, "a[0].b.c"), holds({"a": [1]}, "a[1]"), holds([{"p": "1"}], "csv::p")
    (True, False, True)
    """
    try:
        return len(path) <= LONGEST and _holds(value, path, rootless=rootless)
    except RecursionError:  # lists within lists, hundreds deep
        return False


def _holds(value: Any, path: str, *, rootless: bool) -> bool:
    if path.startswith("csv::"):
        name = path.removeprefix("csv::")
        rows = cast("list[Any]", value) if isinstance(value, list) else []
        return bool(rows) and all(isinstance(row, dict) and name in cast("Any", row) for row in rows)
    if _leads(value, path):
        return True
    inner = list(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else []
    return rootless and len(inner) == 1 and _leads(inner[0], path)


def _leads(value: Any, path: str) -> bool:
    """Follows a path; of keys that hold dots the longest that is there is taken."""
    path = path.removeprefix(".")
    if not path:
        return True
    index = _INDEX.match(path)
    if index:
        rest = path[index.end() :]
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
        if index[1] == "*":
            return any(_leads(item, rest) for item in items)
        return int(index[1]) < len(items) and _leads(items[int(index[1])], rest)
    if isinstance(value, list):  # a record among several, as XML has them
        several = cast("list[Any]", value)
        return bool(several) and all(_leads(item, path) for item in several)
    if not isinstance(value, dict):
        return False
    fields = cast("dict[str, Any]", value)
    ends = sorted({len(path), *(at for at, sign in enumerate(path) if sign in ".[")}, reverse=True)
    key = next((path[:end] for end in ends if path[:end] in fields), None)
    return key is not None and _leads(fields[key], path[len(key) :])
