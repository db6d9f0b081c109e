"""Whether what a program printed is what was expected.

Source: the rule of LiveCodeBench's public test runner (github.com/LiveCodeBench/LiveCodeBench, MIT).
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any, cast


def same_output(printed: str, expected: str) -> bool:
    """Line by line, without the space around lines and around all: the same text, or the same numbers.

    Numbers are compared exactly, as decimals: ``1.0`` is ``1``, but ``0.333333`` is not ``0.3333333``.

    >>> same_output("1.50 2\\n", "1.5 2.0")
    True
    """
    ours, theirs = _lines(printed), _lines(expected)
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def same_value(returned: Any, expected: Any) -> bool:
    """Whether a returned value, tagged as by `gym_resources.code.inside`, equals one read from JSON."""
    try:
        return bool(_untagged(returned) == expected)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_line(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    try:
        return [Decimal(word) for word in ours.split()] == [Decimal(word) for word in theirs.split()]
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
    if "dict" in tagged:
        return {_untagged(key): _untagged(element) for key, element in tagged["dict"]}
    return object()
