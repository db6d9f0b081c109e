"""What control groups keep."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from gym_runtime.environment.isolated import run_isolated
from gym_runtime.errors import ResourceError
from gym_sandbox import (
    Interpreter,
    Limits,
    Sandbox,
    bubblewrap,
    pool,
    process,
    python,
    server_process,
)
from gym_sandbox.processes import bounded, cgroups
from gym_sandbox.processes.cgroups import ControlGroup
from gym_sandbox.processes.child import Child, EndOfProcess
from gym_sandbox.sandbox_errors import SetupError
from running import runs
from runtime.bounds import need_groups
from sandbox.processes.limited_groups import groups

from runtime import sandboxed_functions

pytestmark = pytest.mark.timeout(60)


NEVER_S = 1e6


SMALL = Limits(memory_bytes=128 << 20, disk_bytes=4 << 20)


HOARD = """
import os
end, to_end = os.pipe()
for _ in range(6):  # each of them is within the limit of a process
    if os.fork() == 0:
        os.close(to_end)
        hoard = bytearray(os.urandom(1 << 20) * 40)
        os.read(end, 1)
        os._exit(0)
os.wait()  # for one that is killed
print("outlived it")
"""


@pytest.fixture
def never_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks how large a child is while it runs."""
    need_groups()
    monkeypatch.setattr(pool, "WATCH_S", NEVER_S)
    monkeypatch.setattr(bounded, "WATCH_S", NEVER_S)


@pytest.fixture(params=["bubblewrap", "weak"])
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way of running a program."""
    if request.param == "bubblewrap":
        try:
            bubblewrap.check(os.getpid())
        except SetupError as error:
            pytest.skip(str(error))
    monkeypatch.setenv("GYM_SANDBOX", request.param)


async def start_templates() -> None:
    """What lives as long as the event loop, with groups of its own."""
    async with Sandbox() as box, Interpreter() as session:
        assert (await box.run(["/bin/true"], timeout_s=50)).exit_code == 0
        assert (await session.execute("1", 50)).value == "1"


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.usefixtures("never_looked_at", "sandbox")
async def test_processes_that_fill_memory_together_are_killed_and_that_is_said() -> None:
    await start_templates()
    before = groups()
    async with Sandbox(SMALL) as box:
        result = await box.run([*python.python_command(), "-c", HOARD], timeout_s=50)
    assert result.exit_code == 128 + signal.SIGKILL
    assert b"killed: more than 136 MiB of memory in all processes together" in result.stderr
    async with Interpreter(SMALL) as session:
        lost = await session.execute(f"{HOARD}\nimport os; os.kill(os.getpid(), 9)", 50)
        assert "more than 136 MiB of memory" in str(lost.error)
    async with Sandbox(SMALL) as box, box.start([*python.python_command(), "-c", HOARD]) as child:
        with pytest.raises(EndOfProcess, match="killed: more than 136 MiB"):
            await child.receive(1 << 20)
    assert groups() <= before


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.usefixtures("never_looked_at")
async def test_a_heavy_verifier_too_even_if_a_result_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = msgspec.structs.replace(server_process.LIMITS, memory_bytes=120 << 20, disk_bytes=4 << 20)
    monkeypatch.setattr(server_process, "LIMITS", limits)
    with pytest.raises(ResourceError, match="died: more than 128 MiB of memory in all processes together"):
        await run_isolated(sandboxed_functions.run, HOARD, timeout_s=50)
    assert await run_isolated(sandboxed_functions.pid, timeout_s=50)


@pytest.mark.anyio
@pytest.mark.usefixtures("never_looked_at", "sandbox")
async def test_a_program_that_stays_within_its_limits_notices_nothing() -> None:
    await start_templates()
    before = groups()
    code = "import os; hoard = os.urandom(1 << 20) * 40; open('file', 'w').write('x'); print(len(hoard))"
    async with Sandbox(SMALL) as box:
        result = await box.run([*python.python_command(), "-c", code], timeout_s=50)
    assert (result.exit_code, result.stdout, result.stderr) == (0, b"%d\n" % (40 << 20), b"")
    assert groups() <= before


@pytest.mark.anyio
@pytest.mark.usefixtures("never_looked_at")
async def test_a_fork_bomb_gets_no_further_than_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_SANDBOX", "weak")
    monkeypatch.setattr(bounded, "TASKS_EACH", 1)
    before = groups()
    code = """
import os, time
for number in range(1000):
    try:
        if os.fork() == 0:
            time.sleep(600)
    except BlockingIOError:
        break
print(number)
"""
    async with Sandbox(Limits(processes=16)) as box:
        result = await box.run([*python.python_command(), "-c", code], timeout_s=50)
    assert int(result.stdout) == 16 + process.OF_ITS_OWN - 1
    assert groups() <= before


@pytest.mark.anyio
@pytest.mark.usefixtures("never_looked_at")
async def test_without_isolation_daemons_are_killed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_SANDBOX", "weak")
    code = """
import os, time
ready, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.close(told)
        time.sleep(600)
    os._exit(0)
os.close(told)
os.wait()
os.read(ready, 1)
"""
    async with Sandbox() as box:
        result = await box.run([*python.python_command(), "-c", code], timeout_s=50)
    assert not runs(int(result.stdout))


@pytest.mark.anyio
@pytest.mark.slow
async def test_what_a_killed_worker_has_left_is_ended_by_the_next() -> None:
    need_groups()
    worker = """
import os, subprocess, sys
from gym_sandbox.processes import cgroups
group = cgroups.group(memory_bytes=64 << 20, tasks=16)
left = subprocess.Popen(group.joining(["sleep", "600"]), start_new_session=True)
print(left.pid, *group.folders, flush=True)
sys.stdin.read()
"""
    async with Child([sys.executable, "-c", worker]) as killed:
        pid, *folders = (await killed.read()).decode().split()
        os.kill(killed.pid, signal.SIGKILL)
        await killed.wait()
        assert runs(int(pid))
        assert all(map(os.path.exists, folders))
    async with Child([sys.executable, "-c", worker]) as next_one:
        assert await next_one.read()
        assert not any(map(os.path.exists, folders))
        assert not runs(int(pid))


def test_who_is_in_a_group_makes_none(tmp_path: Path) -> None:
    need_groups()
    group = ControlGroup(cgroups.place(os.getpid()).folders, memory_bytes=256 << 20, tasks=64)
    try:
        code = (
            "import os; from gym_sandbox.processes import cgroups; print(cgroups.place(os.getpid()).why_not)"
        )
        told = subprocess.run(group.joining([sys.executable, "-c", code]), capture_output=True, check=True)
    finally:
        while not group.remove():
            pass
    assert told.stdout == b"this process is in a group with limits itself\n"
