"""Formulas that are safe for a parser that executes them as Python, such as SymPy's."""

from __future__ import annotations

import re

_FUNCTIONS = {
    *("Abs", "Integral", "erf", "exp", "ln", "log", "pi", "sqrt"),
    *("acos", "acot", "acsc", "asec", "asin", "atan", "cos", "cot", "csc", "sec", "sin", "tan"),
    *("acosh", "asinh", "atanh", "cosh", "coth", "sinh", "tanh"),
}
_TOKEN = re.compile(r"\s+|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|[-+*/^(),]|(?P<name>[A-Za-z]\w*)", re.ASCII)


def is_formula(text: str) -> bool:
    """Whether a text is made of numbers, one-letter names, functions' names, operators and parentheses.

    Executed as Python, such a text calls nothing else, and reaches no attribute, item or string.
    """
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        name = token["name"] if token else None
        if token is None or (name and len(name) > 1 and name not in _FUNCTIONS):
            return False
        place = token.end()
    return True
