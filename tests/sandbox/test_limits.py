"""Limits on processes, memory, files, disk, output and time."""

from __future__ import annotations

import os
import signal
import sys
import time

import anyio
import psutil
import pytest
from gym_sandbox import Limits
from gym_sandbox.processes.child import Child
from runtime.bounds import bounds as bounds
from sandbox.programs import DAEMON, MARK, NEEDS_ISOLATION, STUBBORN, living, run, said

pytestmark = [pytest.mark.anyio, NEEDS_ISOLATION]


@pytest.mark.slow
async def test_a_fork_bomb_stays_small() -> None:
    code = """
import os, time
n = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(60)
    except BlockingIOError:
        break
    n += 1
print(n, flush=True)
"""
    assert int(await said(code, Limits(processes=16))) <= 16
    many = await run(
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        Limits(processes=16),
        timeout_s=0.5,
    )
    assert many.timed_out


@pytest.mark.slow
async def test_memory_files_disk_and_processor_time_are_limited() -> None:
    limits = Limits(memory_bytes=256 << 20, file_bytes=1 << 20, disk_bytes=4 << 20, cpu_s=1, open_files=32)
    code = """
try:
    bytearray(1 << 30)
except MemoryError:
    print("memory")
try:
    open("big", "wb").write(bytes(2 << 20))
except OSError as error:
    print(error.errno)
for place in ("/tmp", "/dev/shm"):
    try:
        for number in range(10):
            open(f"{place}/{number}", "wb").write(bytes(1 << 20))
    except OSError as error:
        print(error.errno)
try:
    files = [open("/dev/null") for _ in range(100)]
except OSError as error:
    print(error.errno)
"""
    assert (await said(code, limits)).split() == ["memory", "27", "28", "28", "24"]
    spun = await run("while True: pass", limits, timeout_s=8)
    assert not spun.timed_out
    assert spun.exit_code in (128 + 9, 128 + 24)


async def test_where_the_worker_may_use_less_that_is_the_limit() -> None:
    """Of programs that are forked from a warm Python, and of others."""
    code = """
import anyio
from gym_sandbox import Limits, Sandbox, process, python
from gym_sandbox.readable_files import View
asked = [*python.python_command(), "-c", "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"]
async def main():
    async with Sandbox() as box:
        print((await box.run(asked, timeout_s=50)).stdout.decode(), flush=True)
    shell = process.Program(["/bin/sh", "-c", "echo $(ulimit -n) $(ulimit -Hn)"], Limits(), View())
    async with process.start(shell) as cold:
        print((await cold.read()).decode())
anyio.run(main)
"""
    program = ["/bin/sh", "-c", 'ulimit -n 100 && exec "$@"', "sh", sys.executable, "-c", code]
    assert (await anyio.run_process(program, stderr=None)).stdout.split() == [
        b"(100,",
        b"100)",
        b"100",
        b"100",
    ]


async def test_output_is_cut_and_what_is_dropped_costs_no_memory() -> None:
    before = psutil.Process().memory_info().rss
    code = "import os\nfor _ in range(3000): os.write(1, b'x' * 65536); os.write(2, b'y' * 10)"
    result = await run(code, Limits(output_bytes=1000))
    assert (len(result.stdout), len(result.stderr), result.truncated) == (1000, 1000, True)
    assert psutil.Process().memory_info().rss - before < 30 << 20


@pytest.mark.parametrize(
    "code",
    [f"{STUBBORN}\nwhile True: time.sleep(1)", f"{STUBBORN}\nwhile True: pass", f"{DAEMON}\ntime.sleep(60)"],
    ids=["sleeps", "counts", "leaves a daemon"],
)
async def test_who_takes_too_long_is_killed_with_all_its_descendants(code: str) -> None:
    start_s = time.monotonic()
    result = await run(f"# {MARK}\n{code}", timeout_s=0.3)
    assert result.timed_out
    assert time.monotonic() - start_s < 40
    assert living(MARK) == []


async def test_a_daemon_ends_with_the_program_that_left_it() -> None:
    result = await run(f"# {MARK}\n{DAEMON}print('left')")
    assert (result.exit_code, result.stdout) == (0, b"left\n")
    assert living(MARK) == []


async def test_cancelling_kills() -> None:
    with anyio.move_on_after(0.3) as scope:
        await run(f"# {MARK}\n{DAEMON}\ntime.sleep(60)", timeout_s=60)
    assert scope.cancelled_caught
    assert living(MARK) == []


async def test_it_dies_with_the_worker() -> None:
    code = f"""
import anyio
from gym_sandbox import Sandbox, python
program = "print('up', flush=True); import time; time.sleep(60) # {MARK}"
async def main():
    async with Sandbox() as box:
        async with box.start([*python.python_command(), "-c", program]) as child:
            print((await child.read()).decode(), flush=True)
            await anyio.sleep(60)
anyio.run(main)
"""
    async with Child([sys.executable, "-c", code]) as worker:
        assert (await worker.read()).strip() == b"up"
        assert len(living(MARK)) >= 2
        os.kill(worker.pid, signal.SIGKILL)
        with anyio.fail_after(15):
            while living(MARK):
                await anyio.sleep(0.01)
