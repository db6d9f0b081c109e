"""Whether a returned value is the expected one, by the rules of HumanEval+ and MBPP+.

Values are compared by Python's equality. Where the published test has a tolerance, or expects a float or a
sequence of floats (then the tolerance is at least 1e-6), a value of the same type may also differ by the
tolerance plus 1e-7 of the expected number; NaN is NaN. A few problems have a `Rule` of their own. Returned
values are hostile; the caller bounds their size.

Source: EvalPlus 0.3.1, ``evalplus/eval`` (github.com/evalplus/evalplus, Apache-2.0): rules, not code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, cast

FLOATS = 1e-6
RELATIVE = 1e-7

Rule = Literal["equal", "any", "equal or zero", "pyramid", "digits", "set", "not none", "root"]
"""How a problem's values are compared: besides equality,

- ``any`` value will do, because the problem is ambiguous;
- ``equal or zero``: 0 will do;
- ``pyramid``: so will the surface of a square pyramid whose second argument is its height;
- ``digits``: so will the sum of the differences of the numbers' digits, place by place;
- ``set``: both are compared as sets;
- ``not none``: any value but None stands for True, and None for False;
- ``root``: the argument is a list of a polynomial's coefficients, the value one of its roots.
"""


def right(rule: Rule, arguments: Sequence[Any], returned: Any, expected: Any, tolerance: float) -> bool:
    """Whether a function of these arguments returned what the problem's rule allows."""
    try:
        return _right(rule, arguments, returned, expected, tolerance)
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        return False


def _right(rule: Rule, arguments: Sequence[Any], returned: Any, expected: Any, tolerance: float) -> bool:
    match rule:
        case "root":
            powers = (factor * math.pow(returned, place) for place, factor in enumerate(arguments[0]))
            return abs(sum(powers)) <= tolerance
        case "any":
            return True
        case "set":
            return set(returned) == set(expected)
        case "not none":
            return (returned if isinstance(returned, bool) else returned is not None) == expected
        case "equal or zero" if returned == 0:
            return True
        case "pyramid" if abs(returned - _surface(*arguments)) <= tolerance:
            return True
        case "digits" if returned == _digit_differences(*arguments):
            return True
        case _:
            if returned == expected:
                return True
    if tolerance == 0 and _is_floats(expected):
        tolerance = FLOATS
    return tolerance != 0 and type(returned) is type(expected) and _close(returned, expected, tolerance)


def _close(returned: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, list | tuple) and isinstance(returned, list | tuple):
        ours, theirs = cast("Sequence[Any]", returned), cast("Sequence[Any]", expected)
        return len(ours) == len(theirs) and all(
            _close(one, other, tolerance) for one, other in zip(ours, theirs, strict=True)
        )
    if not (isinstance(returned, int | float) and isinstance(expected, int | float)):
        return False
    if returned == expected or (math.isnan(returned) and math.isnan(expected)):
        return True
    # An infinite expected value would make the bound infinite.
    return math.isfinite(expected) and abs(returned - expected) <= tolerance + RELATIVE * abs(expected)


def _is_floats(value: Any) -> bool:
    if isinstance(value, list | tuple):
        elements = cast("Sequence[Any]", value)
        return bool(elements) and all(isinstance(element, float) for element in elements)
    return isinstance(value, float)


def _surface(edge: float, height: float) -> int:
    return round(edge**2 + 2 * edge * math.hypot(edge / 2, height))


def _digit_differences(one: int, other: int) -> int:
    width = max(len(str(one)), len(str(other)))
    pairs = zip(str(one).zfill(width), str(other).zfill(width), strict=True)
    return sum(abs(int(digit) - int(place)) for digit, place in pairs)
