"""Tests of a program, run one after the other in the sandbox until one fails."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

import anyio
import msgspec
from anyio import to_thread
from gym_runtime.errors import UNREADABLE
from gym_sandbox import Limits, Sandbox, Script, slots
from gym_sandbox.processes import DOUBT, Child, EndOfProcess, undisturbed

from gym_resources.code.output_comparison import same_output, same_value

ROOM_BYTES = 1 << 20
GRACE_S = 5.0
DIGITS_AT_MOST = 60_000
FIRST, GROWTH = 5, 10
"""So many tests may run together at first, and then as many times those that were right together."""
SHARE_CHARACTERS = 1 << 20
SHORT_CHARACTERS = 10_000
"""So few are compared in a millisecond, which is less than a thread would delay the event loop."""


class Case(msgspec.Struct, frozen=True):
    """The input (for a function: its arguments as JSON, one per line), and the expected output."""

    given: str
    expected: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a program's tests.

    Attributes:
        passed: the number of tests, from the first, that passed.
        status: ``passed`` if that is all of them; else how the next one ended: ``wrong``, ``raised``,
            ``timeout``, ``died`` or ``overlong`` (it printed far more than expected).
        error: the end of its error output.
    """

    passed: int
    status: str
    error: str = ""


class _Answer(msgspec.Struct):
    status: str
    output: str = ""
    error: str = ""


_decode = msgspec.json.Decoder(list[_Answer]).decode


async def run_tests(
    code: str,
    tests: Sequence[Case],
    *,
    function: str | None = None,
    test_limit_s: float,
    limits: Limits | None = None,
    packages: Sequence[str] = (),
) -> Outcome:
    """Run a program, or a function of it, on tests until one fails. Cancelling kills it.

    Each test may take ``test_limit_s`` seconds, and all together a second more each, plus five. Waiting
    for a free processor costs no time. They run again if the worker got SIGTERM meanwhile, which may have
    ended the program.

    Raises:
        SetupError: this machine has no isolation.
        StartError: the sandbox could not be started.
    """

    def run() -> Awaitable[Outcome]:
        return _run_all(code, tests, function, test_limit_s, limits, packages)

    return await undisturbed(
        run, lambda outcome: outcome.status == "died", lambda outcome: outcome.error == DOUBT
    )


async def _run_all(
    code: str,
    tests: Sequence[Case],
    function: str | None,
    test_limit_s: float,
    limits: Limits | None,
    packages: Sequence[str],
) -> Outcome:
    async with (
        slots(),
        Sandbox(limits, packages=packages) as box,
        box.start(Script(_script(), forks=True)) as child,
    ):
        passed = 0
        with anyio.move_on_after((test_limit_s + 1) * len(tests) + GRACE_S):
            try:
                first = {"code": code, "fn_name": function, "limit_s": test_limit_s}
                await child.send(json.dumps(first).encode())
                at_most = FIRST
                while passed < len(tests):
                    share = _share(tests, passed, at_most)
                    answers = await _run(child, share)
                    if answers[0].status != "done":
                        return Outcome(passed=passed, status=answers[0].status, error=answers[0].error)
                    short = sum(len(answer.output) for answer in answers) < SHORT_CHARACTERS
                    compared = partial(_right, answers, share, function)
                    right = compared() if short else await to_thread.run_sync(compared)
                    if not right:
                        return Outcome(passed=passed, status="wrong")
                    # A later test that was not right runs again, in a fork of its own.
                    passed += right
                    at_most = GROWTH * right
            except (EndOfProcess, *UNREADABLE) as error:
                return Outcome(passed=passed, status="died", error=str(error))
            return Outcome(passed=passed, status="passed")
        return Outcome(passed=passed, status="timeout")


def _share(tests: Sequence[Case], first: int, at_most: int) -> Sequence[Case]:
    """The next tests, which may share a fork; several only as far as they are short."""
    length, last = 0, first
    while last < min(len(tests), first + at_most) and (last == first or length < SHARE_CHARACTERS):
        length += len(tests[last].given)
        last += 1
    return tests[first:last]


async def _run(child: Child, share: Sequence[Case]) -> list[_Answer]:
    """The answers, at least one: of the first test, and of those that ended well after it."""
    keep = [4 * len(test.expected) + ROOM_BYTES for test in share]
    request = [{"stdin": test.given, "keep_bytes": size} for test, size in zip(share, keep, strict=True)]
    with suppress(EndOfProcess):  # the program did not compile: the answer is written already
        await child.send(json.dumps(request).encode())
    answers = _decode(
        await child.receive(6 * max(keep) + (12 * ROOM_BYTES if len(share) > 1 else ROOM_BYTES))
    )
    if not 0 < len(answers) <= len(share):
        raise ValueError(f"{len(answers)} answers to {len(share)} tests")
    return answers


def _right(answers: Sequence[_Answer], share: Sequence[Case], function: str | None) -> int:
    """How many answers, from the first, are right."""
    for number, (answer, test) in enumerate(zip(answers, share, strict=False)):
        if answer.status != "done" or not matches(answer.output, test.expected, function):
            return number
    return len(answers)


def matches(output: str, expected: str, function: str | None) -> bool:
    """Whether an output, or a function's result as the script writes it, is the expected one."""
    if function is None:
        return same_output(output, expected)
    # The script writes integers as hexadecimal text. A plain integer was forged by the program, and reading
    # it would take quadratic time.
    return same_value(_read(output, _refuse), _read(expected, _integer))


def _read(text: str, parse_int: Callable[[str], Any]) -> Any:
    try:
        return json.loads(text, parse_int=parse_int)
    except (ValueError, RecursionError):
        return object()


def _refuse(digits: str) -> NoReturn:
    raise ValueError


def _integer(digits: str) -> int:
    """Of more than the 4,300 digits at which `int` stops."""
    if len(digits) > DIGITS_AT_MOST:
        raise ValueError
    return int(Decimal(digits))


@cache
def _script() -> str:
    return Path(__file__).with_name("inside.py").read_text("utf-8")
