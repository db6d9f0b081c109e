"""What the sandbox costs: ``python tests/bench/sandbox.py [runs]``.

Prints the time from start to end of `true` and of a Python that does nothing, within the sandbox and without,
the first and later executions of an interpreter, and the time per test of a program; medians and the best,
in milliseconds.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop
from gym_resources.code.program_tests import Case, run_tests
from gym_sandbox import Interpreter, Sandbox, python_command
from gym_sandbox.processes.child import Child

TESTS = 100


async def main(runs: int) -> None:
    async def measure(name: str, work: Callable[[], Awaitable[object]], per: int = 1) -> None:
        times_ms: list[float] = []
        for _ in range(runs):
            start_s = time.perf_counter()
            await work()
            times_ms.append((time.perf_counter() - start_s) * 1000 / per)
        print(f"{name:40} median {statistics.median(times_ms):7.2f}  best {min(times_ms):7.2f} ms")

    async def bare(*program: str) -> None:
        async with Child(program) as child:
            await child.wait()

    async def first_execution() -> None:
        async with Interpreter() as fresh:
            await fresh.execute("1", 5)

    async with Sandbox() as box, Interpreter() as session:
        await session.execute("1", 5)
        await measure("true, bare", lambda: bare("true"))
        await measure("true, sandboxed", lambda: box.run(["true"], timeout_s=5))
        await measure("python, bare", lambda: bare(*python_command(), "-c", ""))
        await measure("python, sandboxed", lambda: box.run([*python_command(), "-c", ""], timeout_s=5))
        await measure("interpreter, from start to end", first_execution)
        await measure("interpreter, one more execution", lambda: session.execute("1", 5))
        tests = [Case("1\n", "1")] * TESTS
        await measure(f"a test of {TESTS}", lambda: run_tests("print(input())", tests, test_limit_s=5), TESTS)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 30))
