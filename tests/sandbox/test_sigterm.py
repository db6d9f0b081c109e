"""SIGTERM to every process of a worker, as from Slurm and systemd, while untrusted code runs."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import psutil
import pytest
from gym_resources.code.program_tests import Case, Outcome, run_tests
from gym_runtime.environment.isolated import run_isolated
from gym_sandbox import Interpreter, Sandbox, python
from gym_sandbox.processes import disturbances
from runtime.bounds import bounds as bounds
from sandbox.programs import NEEDS_ISOLATION
from time_limits import busy

from runtime import sandboxed_functions

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(60), NEEDS_ISOLATION]

WAITS = "import time; time.sleep(2); print('finished')"


def signal_all() -> int:
    """SIGTERM to all descendants, and to this process as far as it takes note; how many there were."""
    reached = 0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.send_signal(signal.SIGTERM)
            reached += 1
    disturbances.note()
    return reached


async def while_signalled(run: Callable[[], Awaitable[Any]], mark: str) -> Any:
    """What a call returned during which all processes got SIGTERM; one had ``mark`` in its command."""
    results: list[Any] = []

    async def call() -> None:
        results.append(await run())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        with anyio.fail_after(20 * busy()):
            while not any(mark in command_of(one) for one in living()):
                await anyio.sleep(0.02)
            await anyio.sleep(0.3)
        assert signal_all() > 0
    return results[0]


def living() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if command_of(one)]


def command_of(process: psutil.Process) -> str:
    """Its arguments; empty for one that has ended."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


async def test_a_program_runs_again() -> None:
    async with Sandbox() as box:

        async def run() -> Any:
            return await box.run([*python.python_command(), "-c", WAITS], timeout_s=10)

        result = await while_signalled(run, "finished")
    assert (result.exit_code, result.stdout) == (0, b"finished\n")


async def test_a_program_that_ends_itself_so_is_believed() -> None:
    async with Sandbox() as box:
        code = f"import os; print('once'); os.kill(os.getpid(), {int(signal.SIGTERM)})"
        result = await box.run([*python.python_command(), "-u", "-c", code], timeout_s=10)
    assert (result.exit_code, result.stdout) == (128 + signal.SIGTERM, b"once\n")


async def test_the_tests_of_a_program_are_not_failed_by_it() -> None:
    outcome = await while_signalled(
        lambda: run_tests(WAITS, [Case("", "finished"), Case("", "finished")], test_limit_s=5), "python"
    )
    assert outcome == Outcome(passed=2, status="passed")


async def test_an_isolated_call_goes_on() -> None:
    code = "import time; time.sleep(2); said = 'finished'"

    async def call() -> str:
        return await run_isolated(sandboxed_functions.run, code, timeout_s=10)

    before = {one.pid for one in living()}  # of other tests, which may end meanwhile
    assert await call() == "finished"
    started = {one.pid for one in living()} - before
    assert await while_signalled(call, "python") == "finished"
    assert started <= {one.pid for one in living()}, "the fork server had to be started again"


async def test_an_interpreter_keeps_its_memory_and_its_code_can_end_processes() -> None:
    async with Interpreter() as session:
        await session.execute("x = 6", 5)
        assert signal_all() > 0
        code = (
            "import multiprocessing, subprocess, time\n"
            "program = subprocess.Popen(['sleep', '60']); program.terminate()\n"
            "fork = multiprocessing.get_context('fork').Process(target=time.sleep, args=(60,))\n"
            "fork.start(); fork.terminate(); fork.join()\n"
            "x, program.wait(), fork.exitcode"
        )
        done = await session.execute(code, 20)
        assert (done.value, done.error) == ("(6, -15, -15)", None)
