r"""Answers in ``\boxed{...}``, the LaTeX convention for a final answer.

Braces are balanced, so ``\boxed{\frac{1}{2}}`` holds ``\frac{1}{2}``; escaped braces count as text. A box
that is never closed is no box: the text was cut off.
"""

from __future__ import annotations

import re

_MARK = re.compile(r"\\boxed\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def boxed(text: str) -> list[str]:
    r"""The contents of all boxes, in order of their opening; a box within a box follows it.

    >>> boxed(r"Either \boxed{1}, or rather \boxed{\text{two}}.")
    ['1', '\\text{two}']
    """
    starts = {match.end(): match.end() for match in _MARK.finditer(text)}
    if not starts:
        return []
    ends: dict[int, int] = {}
    opened: list[int] = []
    for match in _BRACE.finditer(text, min(starts) - 1):
        if match[0] == "{":
            opened.append(match.end())
        elif match[0] == "}" and opened:
            ends[opened.pop()] = match.start()
    return [text[start : ends[start]] for start in starts if start in ends]


def last_boxed(text: str) -> str | None:
    """The content of the box that opens last, or None without one."""
    boxes = boxed(text)
    return boxes[-1] if boxes else None


def first_boxed(text: str) -> str | None:
    """The content of the box that opens first, or None without one."""
    boxes = boxed(text)
    return boxes[0] if boxes else None
