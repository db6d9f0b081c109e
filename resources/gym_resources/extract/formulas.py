"""Formulas that are safe for a parser that executes them as Python, such as SymPy's."""

from __future__ import annotations

import ast
import math
import re

_FUNCTIONS = {
    *("Abs", "Integral", "erf", "exp", "ln", "log", "pi", "sqrt"),
    *("acos", "acot", "acsc", "asec", "asin", "atan", "cos", "cot", "csc", "sec", "sin", "tan"),
    *("acosh", "asinh", "atanh", "cosh", "coth", "sinh", "tanh"),
}
_TOKEN = re.compile(r"\s+|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|[-+*/^(),]|(?P<name>[A-Za-z]\w*)", re.ASCII)


MOST_DIGITS = 1000.0
"""The most digits of a power, and the largest degree: what is larger takes hours and gigabytes."""


def is_formula(text: str) -> bool:
    """Whether a text is made of numbers, one-letter names, functions' names, operators and parentheses.

    Executed as Python, such a text calls nothing else, and reaches no attribute, item or string. Its powers
    are small enough to be computed (`MOST_DIGITS`).
    """
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        name = token["name"] if token else None
        if token is None or (name and len(name) > 1 and name not in _FUNCTIONS):
            return False
        place = token.end()
    try:
        # As SymPy reads it.
        tree = ast.parse(text.replace("\n", "").replace("^", "**").strip(), mode="eval")
        return _digits(tree.body) <= MOST_DIGITS
    except (SyntaxError, ValueError):
        return True  # what Python cannot read, it does not execute
    except (RecursionError, MemoryError):
        return False


def _digits(node: ast.AST) -> float:
    """About how many digits the value of an expression has at most, where a letter has one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return math.log10(max(1.0, abs(node.value)))
    parts = [_digits(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    if isinstance(node, ast.BinOp):
        base, other = parts
        if isinstance(node.op, ast.Pow):
            return max(base, 1.0) * 10 ** min(other, MOST_DIGITS // 10)
        return base + other if isinstance(node.op, ast.Mult | ast.Div) else max(base, other) + 0.3
    return max(parts, default=1.0)
