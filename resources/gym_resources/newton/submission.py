"""A submitted law: found in a reply, run in the sandbox, compared with the true one by its values."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

import msgspec
from anyio import to_thread
from gym_runtime import Reply
from gym_runtime.errors import UNREADABLE
from gym_sandbox import Sandbox, python_command

from gym_resources.extract.tagged import last_tagged
from gym_resources.newton.apparatus import APPARATUS
from gym_resources.newton.laws import Law

TAG = "final_law"
FENCE = "```"
POINTS = 5000
LIMIT_S = 60.0
CODE_CHARACTERS = 100_000
PACKAGES = ("numpy", "scipy")
SPREAD = 2e-3
"""How much the ratio of two laws may vary for them to be the same up to a factor: less than exponents that
differ by 0.001 make of it."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How a submission's values compare with the law's.

    Attributes:
        ran: it could be run; if not, it has no score at all.
        fits: it has the law's parameters.
        rmsle: the root of the mean square of the differences of log(1 + |value|); None without a point at
            which both are defined.
        points: at how many points they are.
        proportional: they differ by the same factor everywhere, and are defined at the same points.
        problem: why the submission has no values; empty if it has.
    """

    ran: bool = True
    fits: bool = True
    rmsle: float | None = None
    points: int = 0
    proportional: bool = False
    problem: str = ""


class _Answer(msgspec.Struct):
    values: list[float | None] = []
    problem: str = ""
    fits: bool = True


_decode = msgspec.json.Decoder(_Answer).decode


def submitted(reply: Reply) -> str | None:
    """The last law in the last message that has one, without a fence around it; None without one."""
    laws = (last_tagged(message.text, TAG) for message in reversed(reply.messages))
    code = next((code for code in laws if code is not None), None)
    if code is None or not code.startswith(FENCE):
        return code
    return code.removesuffix(FENCE).partition("\n")[2].strip()


async def compared(module: str, law: Law, code: str, *, strict: bool = False) -> Comparison:
    """Run a submission in the sandbox, and compare it with the law.

    Args:
        strict: where it is undefined, its value counts as 0.

    Raises:
        StartError: the sandbox could not be started.
    """
    if len(code) > CODE_CHARACTERS:
        return _failed(f"it has more than {CODE_CHARACTERS} characters")
    points, truth = await to_thread.run_sync(tried, module, law)
    request = await to_thread.run_sync(_request, law, code, points)
    async with Sandbox(packages=PACKAGES) as box:
        program = [*python_command(), "-c", _script()]
        done = await box.run(program, stdin=request, timeout_s=LIMIT_S)
    if done.timed_out:
        return _failed(f"it took longer than {LIMIT_S:g} s for {POINTS} points")
    try:
        answer = _decode(done.stdout)
    except UNREADABLE:
        return _failed(f"its process ended with exit code {done.exit_code}")
    if not answer.fits:
        return Comparison(fits=False, problem=answer.problem[:1000])
    if answer.problem:
        return _failed(answer.problem[:1000])
    if len(answer.values) != len(truth):
        return _failed(f"it has {len(answer.values)} values instead of {len(truth)}")
    return compare(truth, [value or 0.0 for value in answer.values] if strict else answer.values)


def _request(law: Law, code: str, points: list[tuple[float, ...]]) -> bytes:
    return json.dumps({"code": code, "parameters": law.parameters, "points": points}).encode()


def _failed(problem: str) -> Comparison:
    return Comparison(ran=False, problem=problem)


def compare(truth: Sequence[float], values: Sequence[float | None]) -> Comparison:
    """Compare values point by point; those at which one of them is undefined do not count."""
    both = [
        (true, value)
        for true, value in zip(truth, values, strict=True)
        if value is not None and math.isfinite(true)
    ]
    if not both:
        return Comparison(problem="no point at which both laws are defined")
    squares = [(math.log1p(abs(value)) - math.log1p(abs(true))) ** 2 for true, value in both]
    ratios = [value / true for true, value in both if true]
    least, most = (min(ratios), max(ratios)) if ratios else (0.0, 0.0)
    same_factor = least * most > 0 and abs(most - least) <= SPREAD * min(abs(least), abs(most))
    everywhere = len(both) == sum(map(math.isfinite, truth))
    return Comparison(
        rmsle=math.sqrt(math.fsum(squares) / len(squares)),
        points=len(both),
        proportional=everywhere and same_factor,
    )


def numeric_score(rmsle: float) -> float:
    """From 1 for no error down to -1.

    >>> numeric_score(0.0), numeric_score(3.0)
    (1.0, 0.0)
    """
    return 1 - 2 * (rmsle / (rmsle + 3))


@cache
def tried(module: str, law: Law) -> tuple[list[tuple[float, ...]], list[float]]:
    """The points at which submissions are tried, the same ones for every rollout, and the law's values there.

    Shapes: (`POINTS`, parameters) and (`POINTS`,).
    """
    random = Random(f"newton_bench {module}")
    points = [
        tuple(
            random.uniform(one.low, one.high)
            if one.uniform
            else math.exp(random.uniform(math.log(one.low), math.log(one.high)))
            for one in APPARATUS[module].ranges
        )
        for _ in range(POINTS)
    ]
    return points, [law(*point) for point in points]


@cache
def _script() -> str:
    return Path(__file__).with_name("trial.py").read_text("utf-8")
