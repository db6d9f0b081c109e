"""Isolated verification: its processes end, and keep their limits."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import psutil
import pytest
from gym_runtime.environment.isolated import run_isolated, verify_isolated
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import ResourceError, UsageError
from gym_sandbox import pool, server_process
from gym_sandbox.processes.child import wait_for_end
from runtime.bounds import bounds as bounds
from runtime.environment.isolated.heavy_module import LEFT_MARK, STARTED_MARK, descendants, row

from runtime import sandboxed_functions

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(60)]


A_SPARE_ONE = 5  # processes: a shell or two, bubblewrap's, the fork server


def with_mark(mark: str) -> list[int]:
    found: list[int] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MARK") == mark:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


async def test_descendants_die_too_even_daemons(module: str) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_times_out, module, "fork", 1)
        with anyio.fail_after(15):
            while not with_mark(STARTED_MARK):
                await anyio.sleep(0.02)
    assert not with_mark(STARTED_MARK)


async def test_what_a_verifier_leaves_behind_ends_with_its_call(module: str) -> None:
    verdict = await verify_isolated(module, row("leave"), make_response(), 15)
    assert not with_mark(LEFT_MARK)
    assert verdict.reward == 0.0
    with pytest.raises(ResourceError, match="the process that verified died"):
        await verify_isolated(module, row("leave and die"), make_response(), 15)
    assert not with_mark(LEFT_MARK)


async def test_time_in_which_the_machine_sleeps_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "WALL_S", 3.0)
    call = partial(run_isolated, sandboxed_functions.sleep, 2, timeout_s=0.1)
    await call()  # the process exists now
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(call)
        await anyio.sleep(1)
        # As for this process, so for its children: until it runs again, they are stopped.
        stopped = psutil.Process().children(recursive=True)
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        time.sleep(4)  # noqa: ASYNC251 - this process does not run
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()
    await call()


async def test_one_that_blocks_signals_and_spins_in_native_code_is_killed(module: str) -> None:
    before = descendants()
    await _times_out(module, "stubborn", 0.3)
    assert len(descendants() - before) <= A_SPARE_ONE


async def test_processes_are_limited(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        server_process, "LIMITS", msgspec.structs.replace(server_process.LIMITS, processes=16)
    )
    before = descendants()
    with pytest.raises(ResourceError, match=r"processes at a time, more than|took longer than"):
        await verify_isolated(module, row("bomb"), make_response(), 1)
    assert len(descendants() - before) <= A_SPARE_ONE


async def test_the_memory_of_all_its_processes_is_limited(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = msgspec.structs.replace(server_process.LIMITS, memory_bytes=120 << 20, disk_bytes=4 << 20)
    monkeypatch.setattr(server_process, "LIMITS", limits)
    before = descendants()
    with pytest.raises(ResourceError, match=r"verified died: .*MiB of memory in"):
        await verify_isolated(module, row("hoard"), make_response(), 10)
    assert len(descendants() - before) <= A_SPARE_ONE


async def test_a_module_that_cannot_be_loaded_says_so_each_time(tmp_path: Path) -> None:
    raises, ends = tmp_path / "raises.py", tmp_path / "ends.py"
    raises.write_text("1 / 0")
    ends.write_text("import os; os._exit(3)")
    for _ in range(3):  # and no input is blamed
        with pytest.raises(UsageError, match="ZeroDivisionError"):
            await verify_isolated(str(raises), row(""), make_response(), 15)
        with pytest.raises(ResourceError, match="ended while it imported"):
            await verify_isolated(str(ends), row(""), make_response(), 15)


async def kill_idle() -> None:
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it has ended since it was listed
            if process.name() == "bwrap":
                process.kill()
                await wait_for_end(process.pid)


async def test_an_idle_process_that_the_system_has_killed_is_no_inputs_fault() -> None:
    await run_isolated(sandboxed_functions.pid, timeout_s=15)
    await kill_idle()
    assert await run_isolated(sandboxed_functions.pid, timeout_s=15)


async def test_several_idle_processes_that_the_system_has_killed_fail_no_call() -> None:
    async def several() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(partial(run_isolated, sandboxed_functions.sleep, 0.3, timeout_s=15))

    await several()
    await kill_idle()
    await several()


async def _times_out(module: str, how: str, timeout_s: float) -> None:
    with pytest.raises(ResourceError, match="took longer"):
        await verify_isolated(module, row(how), make_response(), timeout_s)


async def test_memory_and_file_size_are_limited(module: str) -> None:
    with pytest.raises(ResourceError, match="MemoryError"):
        await verify_isolated(module, row("memory"), make_response(), 15)
    with pytest.raises(ResourceError, match=r"OSError.*File too large"):
        await verify_isolated(module, row("flood"), make_response(), 15)


async def test_an_input_that_has_killed_two_processes_is_refused(module: str) -> None:
    silence = make_response("quarantine me")
    for _ in range(2):
        with pytest.raises(ResourceError, match="the process that verified died"):
            await verify_isolated(module, row("die"), silence, 15)
    with pytest.raises(
        ResourceError, match=r"quarantined: a rollout of 'heavy_module' \(sha256 [0-9a-f]{12}\)"
    ):
        await verify_isolated(module, row("die"), silence, 15)
    assert (await verify_isolated(module, row(""), silence, 15)).reward == 0.0


SPINNING_CHILDREN = """
import os
if os.fork() == 0:
    for _ in range(3):
        os.fork()
    while True:
        pass
os.wait()
"""


async def test_the_time_of_a_forks_children_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "OVERRUNNING_AT_MOST", 0)  # at the lowest priority they might get no time
    with pytest.raises(TimeoutError, match="1 s of processor time"):
        await run_isolated(sandboxed_functions.run, SPINNING_CHILDREN, timeout_s=1)
    assert await run_isolated(sandboxed_functions.pid, timeout_s=15)


async def test_a_fork_that_executes_a_program_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that forks stands still only until then."""
    ends = "import os; os.execv('/bin/sh', ['sh', '-c', 'sleep 0.2; exit 3'])"
    with pytest.raises(ResourceError, match="died: exit code 3"):
        await run_isolated(sandboxed_functions.run, ends, timeout_s=15)
    monkeypatch.setattr(pool, "WALL_S", 0.2)
    with pytest.raises(TimeoutError, match="1 s"):
        await run_isolated(
            sandboxed_functions.run, ends.replace("sleep 0.2", "exec sleep 611"), timeout_s=0.2
        )
    assert await run_isolated(sandboxed_functions.pid, timeout_s=15)


async def test_a_fork_knows_its_thread_by_its_own_number() -> None:
    """It is made without the C library, which keeps the number of each thread."""
    code = """
import ctypes, os, signal, threading
threads = []
thread = threading.Thread(target=threads.append, args=(1,))
thread.start()
thread.join()
signal.signal(signal.SIGUSR1, lambda number, frame: threads.append(2))
ctypes.CDLL(None)['raise'](signal.SIGUSR1)
time = __import__('time')
time.sleep(0.01)
clock = ctypes.c_int()
library = ctypes.CDLL(None)
library.pthread_self.restype = ctypes.c_ulong
assert library.pthread_getcpuclockid(ctypes.c_ulong(library.pthread_self()), ctypes.byref(clock)) == 0
said = str((threads, ~(clock.value >> 3) == os.getpid()))
"""
    assert await run_isolated(sandboxed_functions.run, code, timeout_s=15) == "([1, 2], True)"
