"""What a verdict by code costs: programs with tests, Python sessions, isolated verdicts.

    python tests/bench/sandbox.py [--load 10] [--rounds 3]

CPU is that of this process and of all that it starts, counted by a control group where one can be made. Each
figure is the best round's mean. ``--load`` keeps so many other processes busy meanwhile, at normal priority.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from itertools import count

import anyio
from gym_resources.code.program_tests import Case, run_tests
from gym_runtime import make_response
from gym_runtime.environment import catalogue, examples, verify_isolated
from gym_sandbox import Interpreter, Sandbox, python_command
from gym_testing.checks.cpu_meter import CpuMeter, cpu_meter
from measure import print_table

PROGRAM = "a, b = map(int, input().split())\nprint(a + b)"
VERIFIERS = ("structured_outputs", "math_with_judge", "reasoning_gym")
BUSY = "while True: pass"
Work = Callable[[], Awaitable[object]]
_serial = count()


def tests(number: int) -> Work:
    """A program that passes so many tests."""
    cases = [Case(f"{one} {one}\n", f"{2 * one}\n") for one in range(number)]

    async def run() -> None:
        outcome = await run_tests(PROGRAM, cases, test_limit_s=10, packages=("numpy",))
        assert outcome.status == "passed", outcome

    return run


async def session() -> None:
    """A Python session, from its start over one execution to its end."""
    async with Interpreter() as started:
        assert (await started.execute("6 * 7", 10)).value == "42"


async def command() -> None:
    """Python in the sandbox, as a command."""
    async with Sandbox() as box:
        assert (await box.run([*python_command(), "-c", ""], timeout_s=10)).exit_code == 0


def verdict(name: str) -> Work:
    """An isolated verdict on a wrong answer to an environment's first example."""
    environment = catalogue.environment(name)
    row = examples.read(environment)[0].row

    async def run() -> None:
        reply = make_response(f"<answer>{next(_serial)}</answer>")
        await verify_isolated(str(environment.source), row, reply, 30.0, environment.asset_folders)

    return run


async def measured(meter: CpuMeter, work: Work, times: int, rounds: int) -> tuple[float, float]:
    """Milliseconds of CPU and of the clock, for each call."""
    await work()  # what is started once
    await work()
    found: list[tuple[float, float]] = []
    for _ in range(rounds):
        cpu_ns, wall_ns = meter.others_ns() + time.process_time_ns(), time.perf_counter_ns()
        for _ in range(times):
            await work()
        wall_ns = time.perf_counter_ns() - wall_ns
        cpu_ns = meter.others_ns() + time.process_time_ns() - cpu_ns
        found.append((cpu_ns / times / 1e6, wall_ns / times / 1e6))
    return min(found)


async def main(rounds: int) -> None:
    works: list[tuple[str, Work, int]] = [
        *((f"a program with {number} tests", tests(number), 20) for number in (1, 10, 50)),
        ("a session", session, 20),
        ("a command", command, 20),
        *((f"an isolated verdict of {name}", verdict(name), 100) for name in VERIFIERS),
    ]
    rows: list[list[object]] = []
    with cpu_meter() as meter:
        for name, work, times in works:
            cpu_ms, wall_ms = await measured(meter, work, times, rounds)
            rows.append([name, f"{cpu_ms:.1f}", f"{wall_ms:.1f}"])
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print_table(f"Counted by {meter.counted_by}, at a load of {load}", ["", "CPU ms", "wall ms"], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with ExitStack() as others:
        for _ in range(options.load):
            busy = others.enter_context(subprocess.Popen([sys.executable, "-c", BUSY]))
            others.callback(busy.kill)
        anyio.run(main, options.rounds, backend_options={"use_uvloop": True})
