"""Mathematical answers as the library math-verify reads them, without what it costs to read simple ones."""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Any, NamedTuple

AROUND = ((r"\(", r"\)"), ("$", "$"))
_is_whole_number = re.compile("[0-9]{1,100}").fullmatch


def bare(answer: str) -> str:
    r"""An answer without ``\(…\)`` and then ``$…$`` around all of it.

    >>> bare(r"\( $32$ \)")
    '32'
    """
    for opening, closing in AROUND:
        answer = answer.strip()
        if answer.startswith(opening) and answer.endswith(closing) and len(answer) >= len(opening + closing):
            answer = answer[len(opening) : -len(closing)]
    return answer.strip()


def whole_number(answer: str) -> list[Any]:
    """What the library reads in a whole number, without the library, which takes a while; else nothing."""
    return [load_library().integer(answer), answer] if _is_whole_number(answer) else []


class Library(NamedTuple):
    """Functions of the library, its ways to read an answer, and what it reads whole numbers as."""

    parse: Any
    verify: Any
    latex: Any
    plain: Any
    integer: Any


@cache  # for each call to `setLevel`, Python empties the caches of all loggers
def load_library() -> Library:
    import math_verify  # pyright: ignore[reportMissingImports]
    import sympy  # pyright: ignore[reportMissingImports]

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own limits are off
    return Library(
        math_verify.parse,
        math_verify.verify,
        latex=math_verify.LatexExtractionConfig(),
        plain=math_verify.ExprExtractionConfig(),
        integer=sympy.Integer,
    )
