"""``python -m gym_testing.audit.elsewhere NAME``: judges replies in its own process.

It reads lines with a row and a response from its standard input, and writes their rewards as one JSON list,
null for an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import anyio
import msgspec
from anyio import to_thread
from gym_runtime.environment import Example, LoadedEnvironment, catalogue, examples
from gym_runtime.errors import GymError
from msgspec import Raw

from gym_testing.checks.subject import Subject

ELSEWHERE = {"TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "4711"}
"""What differs in the other process: an odd time zone, a locale with other letters, another order of sets."""


class Line(msgspec.Struct):
    """A row with its gold, and a response."""

    row: Raw
    response: Raw


async def judge_elsewhere(
    name: str, replies: Sequence[tuple[Example, bytes]], limit_s: float
) -> list[float | None] | None:
    """The rewards of replies in another process; None if that took too long or failed."""
    lines = [msgspec.json.encode(Line(Raw(one.row), Raw(response))) for one, response in replies]

    def run() -> list[float | None] | None:
        command = [sys.executable, "-m", "gym_testing.audit.elsewhere", name]
        try:
            done = subprocess.run(
                command,
                input=b"\n".join(lines),
                capture_output=True,
                timeout=limit_s,
                env={**os.environ, **ELSEWHERE},
            )
            return msgspec.json.decode(done.stdout, type=list[float | None])
        except (subprocess.TimeoutExpired, msgspec.DecodeError):
            return None

    return await to_thread.run_sync(run)


async def rewards(environment: LoadedEnvironment, lines: Sequence[bytes]) -> list[float | None]:
    """The reward of each line; None for an error."""
    found: list[float | None] = []
    for number, line in enumerate(lines, 1):
        read = msgspec.json.decode(line, type=Line)
        example = examples.example(environment, f"line {number}", number, bytes(read.row))
        try:
            verdict = await Subject(environment, [example]).judge(example, bytes(read.response))
            found.append(verdict.reward)
        except GymError:
            found.append(None)
    return found


def _main() -> None:
    environment = catalogue.environment(sys.argv[1])
    found = anyio.run(rewards, environment, sys.stdin.buffer.read().splitlines())
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    _main()
