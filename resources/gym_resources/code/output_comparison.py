"""Whether what a program printed, or a function returned, is what was expected.

A program's output is hostile: all functions here take linear time in it.
Source: the rule of LiveCodeBench's public test runner (github.com/LiveCodeBench/LiveCodeBench, MIT).
"""

from __future__ import annotations

import json
import math
from decimal import Decimal, InvalidOperation
from typing import Any, cast

ABSOLUTE = 1e-8
RELATIVE = 1e-5


def same_output(printed: str, expected: str) -> bool:
    """Whether two outputs have the same text or the same numbers, line by line, without surrounding space.

    Numbers are compared exactly, as decimals: ``1.0`` is ``1``, but ``0.333333`` is not ``0.3333333``.

    >>> same_output("1.50 2\\n", "1.5 2.0")
    True
    """
    ours, theirs = _lines(printed), _lines(expected)
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def same_value(returned: Any, expected: Any) -> bool:
    """Whether a returned value, tagged as by `gym_resources.code.inside`, is one read from JSON.

    It is if both are equal, or equal when written as JSON (a tuple in a list, a number as a key, NaN), or if
    both are finite numbers, or texts that `float` reads so, and differ by no more than 1e-8 plus 1e-5 of the
    expected.
    """
    try:
        value = _untagged(returned)
        return bool(value == expected) or _close(value, expected) or json.dumps(value) == json.dumps(expected)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return False


def _close(value: Any, expected: Any) -> bool:
    if not (isinstance(value, str | int | float) and isinstance(expected, str | int | float)):
        return False
    try:
        one, other = float(value), float(expected)
    except (ValueError, OverflowError):
        return False
    # An infinite expected value would make the bound infinite.
    return math.isfinite(other) and abs(one - other) <= ABSOLUTE + RELATIVE * abs(other)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_line(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    words, wanted = ours.split(), theirs.split()
    if len(words) != len(wanted):
        return False
    try:
        return all(Decimal(word) == Decimal(other) for word, other in zip(words, wanted, strict=True))
    except (InvalidOperation, ValueError):
        return False


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(element) for element in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    tagged = cast("dict[str, Any]", value)
    if "int" in tagged:
        return int(tagged["int"], 16)
    if "tuple" in tagged:
        return tuple(_untagged(element) for element in tagged["tuple"])
    if "dict" in tagged:
        return {_untagged(key): _untagged(element) for key, element in tagged["dict"]}
    return object()
