"""A program with the published tests that assert about it, run together in one sandboxed process.

Only for tests that cannot be told from the program, such as unit tests that replace what it calls: the
program can reach them. Where a program's values can be compared outside, `function_calls` does it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE
from gym_sandbox import Limits, Sandbox, python_command

CODE_CHARACTERS = 1 << 20


class Asserted(msgspec.Struct, frozen=True, kw_only=True):
    """How many tests passed, of how many that began; and how the first that did not pass ended."""

    passed: int = 0
    ran: int = 0
    error: str = ""


_decode = msgspec.json.Decoder(Asserted).decode


async def asserted(
    code: str,
    tests: Sequence[str],
    *,
    limit_s: float,
    packages: Sequence[str],
    setup: str = "",
    targets: Sequence[Any] = (),
    unittest: bool = False,
    folders: Sequence[str] = (),
    limits: Limits | None = None,
) -> Asserted:
    """What the tests say of a program. Cancelling kills it.

    Args:
        tests: each is run by itself; with ``unittest`` the one program that defines the cases.
        setup: a trusted program that runs before, and may leave a list ``targets``.
        targets: what each test finds as ``target``.

    Raises:
        SetupError: this machine has no isolation.
        StartError: the sandbox could not be started.
    """
    if len(code) > CODE_CHARACTERS:
        return Asserted(error=f"it has more than {CODE_CHARACTERS} characters")
    mark = secrets.token_hex(16)
    request = {
        "code": code,
        "tests": list(tests),
        "setup": setup,
        "targets": list(targets),
        "unittest": unittest,
        "mark": mark,
    }
    async with Sandbox(limits, packages=packages, folders=folders) as box:
        program = [*python_command(), "-c", _script()]
        done = await box.run(program, stdin=json.dumps(request).encode(), timeout_s=limit_s)
    if done.timed_out:
        return Asserted(error=f"it took longer than {limit_s:g} s")
    line = done.stdout.rpartition(b"\n")[2]
    try:
        if not line.startswith(mark.encode()):
            return Asserted(error=f"its process ended with exit code {done.exit_code}")
        return _decode(line[len(mark) :])
    except UNREADABLE:
        return Asserted(error="its process wrote no result")


@cache
def _script() -> str:
    return Path(__file__).with_name("asserted_inside.py").read_text("utf-8")
