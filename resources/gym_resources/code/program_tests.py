"""Tests of a program, run one after the other in the sandbox until one fails."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import anyio
import msgspec
from anyio import to_thread
from gym_runtime.errors import UNREADABLE
from gym_sandbox import Limits, Sandbox, python_command, slots
from gym_sandbox.processes import Child, EndOfProcess, undisturbed

from gym_resources.code.output_comparison import same_output, same_value

ROOM_BYTES = 1 << 20
GRACE_S = 5.0
DIGITS_AT_MOST = 60_000


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


_decode = msgspec.json.Decoder(_Answer).decode


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

    return await undisturbed(run, lambda outcome: outcome.status == "died")


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
        box.start([*python_command(), "-c", _script()]) as child,
    ):
        passed = 0
        with anyio.move_on_after((test_limit_s + 1) * len(tests) + GRACE_S):
            try:
                await child.send(json.dumps({"code": code, "fn_name": function}).encode())
                for test in tests:
                    answer = await _run(child, test, test_limit_s)
                    if answer.status != "done":
                        return Outcome(passed=passed, status=answer.status, error=answer.error)
                    if not await to_thread.run_sync(_right, answer.output, test.expected, function):
                        return Outcome(passed=passed, status="wrong")
                    passed += 1
            except (EndOfProcess, *UNREADABLE) as error:
                return Outcome(passed=passed, status="died", error=str(error))
            return Outcome(passed=passed, status="passed")
        return Outcome(passed=passed, status="timeout")


async def _run(child: Child, test: Case, limit_s: float) -> _Answer:
    keep = 4 * len(test.expected) + ROOM_BYTES
    request = {"stdin": test.given, "limit_s": limit_s, "keep_bytes": keep}
    with suppress(EndOfProcess):  # the program did not compile: the answer is written already
        await child.send(json.dumps(request).encode())
    return _decode(await child.receive(6 * keep + ROOM_BYTES))


def _right(output: str, expected: str, function: str | None) -> bool:
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
