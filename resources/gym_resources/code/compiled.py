"""A C++ program on tests: compiled and run in a sandbox that sees the inputs only, compared outside of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import msgspec
from anyio import to_thread
from gym_runtime import UsageError
from gym_runtime.errors import UNREADABLE
from gym_sandbox import Limits, Sandbox, python_command

from gym_resources.code.output_comparison import same_output
from gym_resources.code.program_tests import Case, Outcome

ROOM_BYTES = 1 << 20
START_S = 75.0
SHARE_BYTES = 32 << 20
LIMITS = Limits(disk_bytes=512 << 20, output_bytes=256 << 20, processes=64)


class _Run(msgspec.Struct):
    status: str
    output: str = ""


class _Answer(msgspec.Struct):
    problem: str = ""
    outputs: list[_Run] = []


_decode = msgspec.json.Decoder(_Answer).decode


def require_compiler() -> None:
    """A compiler is where programs of sandboxes find it.

    Raises:
        UsageError: no compiler is installed.
    """
    if shutil.which("g++", path="/usr/bin:/usr/local/bin") is None:
        raise UsageError("this environment compiles C++, and there is no g++: apt-get install g++")


async def run_compiled(
    sources: Mapping[str, str], tests: Sequence[Case], *, test_limit_s: float, memory_bytes: int
) -> Outcome:
    """Compile sources and run the program on tests until one fails. Cancelling kills it.

    Args:
        sources: each file's text by its name; those that end with ``.cpp`` or ``.cc`` are compiled.
        test_limit_s: of the processor, for each test.
        memory_bytes: address space of the program.

    Returns:
        ``compile`` as the status if it does not compile.

    Raises:
        SetupError: this machine has no isolation.
        StartError: the sandbox could not be started.
    """
    passed = 0
    for share in _shares(tests):
        request = {
            "sources": dict(sources),
            "inputs": [test.given for test in share],
            "limit_s": test_limit_s,
            "memory_bytes": memory_bytes,
            "keep_bytes": [4 * len(test.expected.encode()) + ROOM_BYTES for test in share],
        }
        async with Sandbox(LIMITS) as box:
            program = [*python_command(), "-c", _script()]
            limit_s = START_S + (3 * test_limit_s + 2) * len(share)
            done = await box.run(program, stdin=json.dumps(request).encode(), timeout_s=limit_s)
        if done.timed_out:
            return Outcome(passed=passed, status="timeout")
        try:
            answer = _decode(done.stdout)
        except UNREADABLE:
            return Outcome(passed=passed, status="died", error=f"exit code {done.exit_code}")
        if answer.problem:
            return Outcome(passed=passed, status="compile", error=answer.problem)
        right, status = await to_thread.run_sync(partial(_compared, answer.outputs, share))
        passed += right
        if status != "passed":
            return Outcome(passed=passed, status=status)
    return Outcome(passed=passed, status="passed")


def _compared(runs: Sequence[_Run], tests: Sequence[Case]) -> tuple[int, str]:
    """How many outputs, from the first, are right; and ``passed``, or how the next one ended."""
    for number, (run, test) in enumerate(zip(runs, tests, strict=False)):
        if run.status != "done":
            return number, run.status
        if not same_output(run.output, test.expected):
            return number, "wrong"
    return len(runs), "passed" if len(runs) == len(tests) else "died"


def _shares(tests: Sequence[Case]) -> list[list[Case]]:
    """The tests, in parts of bounded size; each part compiles the program."""
    shares: list[list[Case]] = [[]]
    size = 0
    for test in tests:
        size += len(test.given) + len(test.expected)
        if size > SHARE_BYTES and shares[-1]:
            shares.append([])
            size = len(test.given) + len(test.expected)
        shares[-1].append(test)
    return shares


@cache
def _script() -> str:
    return Path(__file__).with_name("compiled_inside.py").read_text("utf-8")
