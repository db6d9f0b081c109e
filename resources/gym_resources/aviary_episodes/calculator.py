"""The library's GSM8K environment, with a calculator that cannot hang its worker.

An expression such as ``9**9**9**9`` would hold the interpreter's lock for ever. So integers are limited to
`BITS_AT_MOST`, and expressions to `CHARACTERS_AT_MOST`, since parsing takes hundreds of bytes per character;
an expression beyond a limit cannot be evaluated.
"""

from __future__ import annotations

import ast
import math
from contextlib import suppress

from aviary.envs.gsm8k import CalculatorEnv
from aviary.envs.gsm8k.env import SafeMathEvaluator

CHARACTERS_AT_MOST = 2_000
BITS_AT_MOST = 14_000  # Python prints no integer of more than 4,300 digits
Number = int | float


def _bounded(bits: float) -> None:
    if bits > BITS_AT_MOST:
        raise ValueError(f"a number has more than {BITS_AT_MOST} bits")


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        _bounded(exponent * math.log2(abs(base)))
    return base**exponent


def _product(one: Number, other: Number) -> Number:
    if isinstance(one, int) and isinstance(other, int):
        _bounded(one.bit_length() + other.bit_length())
    return one * other


def _round(number: Number, digits: int | None = None) -> Number:
    _bounded(abs(digits or 0))
    return round(number, digits)


class Evaluator(SafeMathEvaluator):
    """The library's evaluator with limits on numbers."""

    SAFE_OPERATORS = SafeMathEvaluator.SAFE_OPERATORS | {ast.Pow: _power, ast.Mult: _product}
    SAFE_FUNCTIONS = SafeMathEvaluator.SAFE_FUNCTIONS | {"round": _round}


class Calculator(CalculatorEnv):
    """The library's environment, with this evaluator."""

    def calculator(self, expr: str) -> tuple[float | str, float, bool]:
        try:
            if len(expr) > CHARACTERS_AT_MOST:
                raise ValueError(f"an expression has at most {CHARACTERS_AT_MOST} characters")
            result = Evaluator.evaluate(expr.strip())
            with suppress(ValueError):
                result = int(result) if int(result) == result else result
        except (ArithmeticError, ValueError, TypeError, RecursionError, MemoryError) as error:
            settings = self.config
            said = f"Error using calculator: {error!r}."
            return said, settings.tool_failure_reward, settings.done_on_failure
        return result, self.config.tool_success_reward, False

    calculator.__doc__ = CalculatorEnv.calculator.__doc__
