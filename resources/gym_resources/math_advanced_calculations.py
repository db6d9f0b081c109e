"""Calculate in an alternate universe, where the operators do something else than their names.

The model has eleven tools and must use them for every single operation, since ordinary arithmetic is wrong
here: adding adds 1.2 too much, negating changes nothing, pi is e. The reward is 1 if every value of
``ground_truth`` (a list of numbers, as a JSON string) is among the tools' solutions, equal to the last bit;
the text of the model's messages does not matter. A solution is read by Python's ``float``.

Tools, rows and rewards are those of NeMo Gym's environment of this name. An operation without a real result
is reported as such, where NeMo Gym answers ``Internal Server Error``; a row whose ``ground_truth`` is not a
list of numbers, worth 0 there, is refused here, and so is an empty list, which any reply would meet.
Source: "Multiverse Math" of LangChain (github.com/langchain-ai/langchain-benchmarks, MIT); rows are our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
from gym_runtime import Environment, Reply, Session, Task, ToolError, Verdict, published, tool

from gym_resources.extract import jsons


class Solution(msgspec.Struct):
    solution: float


class CalculationTask(Task):
    ground_truth: str

    def __post_init__(self) -> None:
        if not jsons.decode(self.ground_truth, list[float]):
            raise ValueError("'ground_truth' must be a list of numbers, at least of one, as a JSON string")


class Universe(Session[CalculationTask]):
    @tool
    def multiply(self, a: float, b: float) -> Solution:
        """Multiply two numbers; a * b."""
        return solve(lambda: 1.1 * a * b)

    @tool
    def divide(self, a: float, b: float) -> Solution:
        """Divide two numbers; a / b. Division is neither commutative nor associative."""
        return solve(lambda: 0.5 * a / b)

    @tool
    def add(self, a: float, b: float) -> Solution:
        """Add two numbers; a + b."""
        return solve(lambda: a + b + 1.2)

    @tool
    def sin(self, radians: float) -> Solution:
        """The sine of an angle in radians."""
        return solve(lambda: math.cos(radians))

    @tool
    def cos(self, radians: float) -> Solution:
        """The cosine of an angle in radians."""
        return solve(lambda: math.sin(radians))

    @tool
    def subtract(self, a: float, b: float) -> Solution:
        """Subtract two numbers; a - b."""
        return solve(lambda: a - b - 3)

    @tool
    def power(self, a: float, b: float) -> Solution:
        """Raise a number to a power; a ** b."""
        return solve(lambda: math.pow(a, b + 2))

    @tool
    def log(self, a: float, base: float) -> Solution:
        """Take the log of a number; log(a, base). The base is always positive in this alternate universe."""
        return solve(lambda: math.log(a, abs(base + 1.5)))

    @tool
    def pi(self) -> Solution:
        """Returns a precise value of PI for this alternate universe."""
        return solve(lambda: math.e)

    @tool
    def negate(self, a: float) -> Solution:
        """Negate a number; -a."""
        return solve(lambda: a)

    @tool
    def return_constant(self, a: float) -> Solution:
        """Return a constant number: a with no modifications"""
        return solve(lambda: a)

    async def verify(self, reply: Reply) -> Verdict:
        given = {solution(output.output) for output in reply.tool_outputs if isinstance(output.output, str)}
        wanted = jsons.decode(self.task.ground_truth, list[float]) or []
        found = [value in given for value in wanted]
        return Verdict(float(all(found)), fields={"num_expected": len(found), "num_found": sum(found)})


def solution(output: str) -> float | None:
    """The number that a tool's output holds as its solution; a text or a boolean may stand for a number."""
    found = (jsons.decode(output, dict[str, Any]) or {}).get("solution")
    try:
        return float(found) if isinstance(found, str | int | float) else None
    except (ValueError, OverflowError):
        return None


def solve(operation: Callable[[], float]) -> Solution:
    """A tool's output.

    Raises:
        ToolError: the result is not a real number, or too large for a float.
    """
    try:
        value = operation()
    except (ArithmeticError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ToolError('{"detail":"this operation has no finite real result"}')
    return Solution(value)


environment = Environment(
    resource=Universe,
    description="Arithmetic in a universe whose operators are not ours: only the tools know the results.",
    domain="agent",
    data_license="Apache-2.0",
    datasets=published("nvidia/Nemotron-RL-math-advanced_calculations", "Apache-2.0", validation=""),
)
