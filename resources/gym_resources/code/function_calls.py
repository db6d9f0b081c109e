"""A function of a program, called in the sandbox with one input after the other until a result is wrong.

Results are compared outside of the sandbox, in a thread; the expected values never enter it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from gym_sandbox import Sandbox, Script, slots
from gym_sandbox.processes import DOUBT, EndOfProcess, undisturbed

from gym_resources.code.called_inside import ANSWER_BYTES_AT_MOST, tagged, untagged
from gym_resources.code.program_tests import Outcome

ROOM_BYTES = 64 << 10
START_S = 10.0
TOTAL_S = 60.0
PACKAGES = ("numpy",)

Right = Callable[[int, Any], bool]
"""Whether a value is right for the input of this number; called in a thread."""


class Call(msgspec.Struct, frozen=True):
    """A program, its function's name, and the arguments of each call, tagged as by `called_inside.tagged`."""

    code: str
    function: str
    inputs: Sequence[Any]


async def run_calls(
    call: Call,
    right: Right,
    expected_bytes: Sequence[int],
    *,
    call_limit_s: float,
    packages: Sequence[str] = PACKAGES,
) -> Outcome:
    """Call the function until a result is wrong. Cancelling kills the program.

    Each call may take ``call_limit_s`` seconds, all together a minute, and the start ten seconds more;
    waiting for a free processor costs no time. A result whose JSON is longer than four times the expected
    one's, ``expected_bytes``, plus 64 KiB, is ``overlong`` and is not read.

    Raises:
        SetupError: this machine has no isolation.
        StartError: the sandbox could not be started.
    """

    def run() -> Awaitable[Outcome]:
        return _compared(call, right, expected_bytes, call_limit_s, packages)

    return await undisturbed(
        run, lambda outcome: outcome.status == "died", lambda outcome: outcome.error == DOUBT
    )


async def returned_values(call: Call, *, call_limit_s: float) -> list[Any] | None:
    """The tagged values that a trusted function returns; None where a call fails. Raises as `run_calls`."""
    values: list[Any] = []

    def keep(number: int, value: Any) -> bool:
        values[number:] = [tagged(value)]
        return True

    room = [ANSWER_BYTES_AT_MOST] * len(call.inputs)
    outcome = await run_calls(call, keep, room, call_limit_s=call_limit_s)
    return values if outcome.status == "passed" else None


async def _compared(
    call: Call, right: Right, expected_bytes: Sequence[int], limit_s: float, packages: Sequence[str]
) -> Outcome:
    passed = 0
    async with (
        slots(),
        Sandbox(packages=packages) as box,
        box.start(Script(_script())) as child,
    ):
        try:
            with anyio.fail_after(START_S + TOTAL_S):
                await child.send(msgspec.json.encode(call))
                for expected in expected_bytes:
                    with anyio.fail_after(limit_s + START_S * (passed == 0)):
                        answer = await child.receive(ANSWER_BYTES_AT_MOST)
                    if len(answer) > 4 * expected + ROOM_BYTES:
                        return Outcome(passed=passed, status="overlong")
                    status, error = await to_thread.run_sync(_status, answer, passed, right)
                    if status != "done":
                        return Outcome(passed=passed, status=status, error=error)
                    passed += 1
        except TimeoutError:
            return Outcome(passed=passed, status="timeout")
        except EndOfProcess as error:
            return Outcome(passed=passed, status="died", error=str(error))
    return Outcome(passed=passed, status="passed")


def _status(answer: bytes, number: int, right: Right) -> tuple[str, str]:
    """How a call ended, from an answer that may be forged: ``done`` only if its value is right."""
    try:
        said = json.loads(answer)
        if said["status"] == "done":
            return ("done" if right(number, untagged(said["value"])) else "wrong"), ""
        status = "raised" if said["status"] == "raised" else "overlong"
        return status, str(said.get("error", ""))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return "wrong", ""


@cache
def _script() -> str:
    return Path(__file__).with_name("called_inside.py").read_text("utf-8")
