"""The library's GSM8K environment, with a calculator that cannot hang its worker.

An expression such as ``9**9**9**9`` holds the interpreter's lock for ever. So only sums, products and the
like are calculated in place; all else in a process that is killed after `LIMIT_S` seconds.
"""

from __future__ import annotations

import re

from aviary.envs.gsm8k import CalculatorEnv
from gym_runtime.errors import ResourceError
from gym_runtime.heavy import run_killable

LIMIT_S = 2.0
DIGITS_AT_MOST = 4000  # Python writes no integers above 4300

_HARMLESS = re.compile(r"(?:[0-9.\s()+/-]|(?<!\*)\*(?!\*)){,500}")

Calculated = tuple[float | str, float, bool]


class Calculator(CalculatorEnv):
    """The library's environment; how long its calculator takes has a limit."""

    async def calculator(self, expr: str) -> Calculated:  # pyright: ignore[reportIncompatibleMethodOverride]
        if _HARMLESS.fullmatch(expr):
            return super().calculator(expr)
        try:
            return await run_killable(calculate, expr, timeout_s=LIMIT_S, what="an expression")
        except (TimeoutError, ResourceError):
            return self._failed(f"it takes longer than {LIMIT_S:g} s, or too much memory")

    calculator.__doc__ = CalculatorEnv.calculator.__doc__

    def _failed(self, reason: str) -> Calculated:
        settings = self.config
        return f"Error using calculator: {reason}.", settings.tool_failure_reward, settings.done_on_failure


def calculate(expr: str) -> Calculated:
    """What the library's calculator answers; runs in a process."""
    library = CalculatorEnv(problem_id=None, problem="", answer=0.0)
    result, reward, done = library.calculator(expr)
    if isinstance(result, int) and abs(result) >= 10**DIGITS_AT_MOST:
        raise TimeoutError
    return result, reward, done
