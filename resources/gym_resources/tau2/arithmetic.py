"""The value of a sum, product or quotient of numbers, of a bounded length; nothing is executed."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

LONGEST = 200
_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def value(expression: str) -> float:
    """The value.

    Raises:
        ValueError: it is too long, is not one of these, or has no finite value.

    >>> value("2 * (3 + 4) / -7")
    -2.0
    """
    if len(expression) > LONGEST:
        raise ValueError(f"the expression is longer than {LONGEST} characters")
    try:
        found = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(f"the expression has no value: {type(error).__name__}") from error
    if not math.isfinite(found):
        raise ValueError("the expression has no finite value")
    return found


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # pyright: ignore[reportArgumentType] - one of the two
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand))
    raise ValueError("only numbers, + - * / and parentheses are understood")
