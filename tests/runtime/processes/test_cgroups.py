"""Limits that the kernel keeps, between two looks of ours; and where groups for that may be made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from gym_runtime.environment.isolated import run_isolated
from gym_runtime.errors import ResourceError, UsageError
from gym_runtime.processes import bounded, cgroups
from gym_runtime.processes.cgroups import ControlGroup
from gym_runtime.processes.child import Child, EndOfProcess
from gym_runtime.processes.delegation import LEAF, PREFIX, own_groups, prepare
from gym_runtime.sandbox import (
    Interpreter,
    Limits,
    Sandbox,
    bubblewrap,
    process,
    python,
    verifiers,
    warm,
)
from runtime.bounds import need_groups

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
    monkeypatch.setattr(verifiers, "WATCH_S", NEVER_S)
    monkeypatch.setattr(process, "WATCH_S", NEVER_S)


@pytest.fixture(params=["bubblewrap", "weak"])
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way of running a program."""
    if request.param == "bubblewrap":
        try:
            bubblewrap.check(os.getpid())
        except UsageError as error:
            pytest.skip(error.message)
    monkeypatch.setenv("GYM_SANDBOX", request.param)


def groups() -> set[Path]:
    """Those that this process has made, and not removed yet."""
    folders = cgroups.place(os.getpid()).folders
    return {path for folder in folders for path in folder.glob(f"{PREFIX}*-{os.getpid()}-*")}


def living(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


# -- what the kernel keeps ----------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.usefixtures("never_looked_at", "sandbox")
async def test_processes_that_fill_memory_together_are_killed_and_that_is_said() -> None:
    before = groups()
    async with Sandbox(SMALL) as box:
        result = await box.run([*python.command(), "-c", HOARD], timeout_s=50)
    assert result.exit_code == 128 + signal.SIGKILL
    assert b"killed: more than 136 MiB of memory in all processes together" in result.stderr
    async with Interpreter(SMALL) as session:
        lost = await session.execute(f"{HOARD}\nimport os; os.kill(os.getpid(), 9)", 50)
        assert "more than 136 MiB of memory" in str(lost.error)
    async with Sandbox(SMALL) as box, box.start([*python.command(), "-c", HOARD]) as child:
        with pytest.raises(EndOfProcess, match="killed: more than 136 MiB"):
            await child.receive(1 << 20)
    assert groups() <= before


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.usefixtures("never_looked_at")
async def test_a_heavy_verifier_too_even_if_a_result_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = msgspec.structs.replace(warm.LIMITS, memory_bytes=120 << 20, disk_bytes=4 << 20)
    monkeypatch.setattr(warm, "LIMITS", limits)
    with pytest.raises(ResourceError, match="died: more than 128 MiB of memory in all processes together"):
        await run_isolated(sandboxed_functions.run, HOARD, timeout_s=50)
    assert await run_isolated(sandboxed_functions.pid, timeout_s=50)


@pytest.mark.anyio
@pytest.mark.usefixtures("never_looked_at", "sandbox")
async def test_a_program_that_stays_within_its_limits_notices_nothing() -> None:
    before = groups()
    code = "import os; hoard = os.urandom(1 << 20) * 40; open('file', 'w').write('x'); print(len(hoard))"
    async with Sandbox(SMALL) as box:
        result = await box.run([*python.command(), "-c", code], timeout_s=50)
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
        result = await box.run([*python.command(), "-c", code], timeout_s=50)
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
        result = await box.run([*python.command(), "-c", code], timeout_s=50)
    assert not living(int(result.stdout))


@pytest.mark.anyio
@pytest.mark.slow
async def test_what_a_killed_worker_has_left_is_ended_by_the_next() -> None:
    need_groups()
    worker = """
import os, subprocess, sys
from gym_runtime.processes import cgroups
group = cgroups.group(memory_bytes=64 << 20, tasks=16)
left = subprocess.Popen(group.joining(["sleep", "600"]), start_new_session=True)
print(left.pid, *group.folders, flush=True)
sys.stdin.read()
"""
    async with Child([sys.executable, "-c", worker]) as killed:
        pid, *folders = (await killed.read()).decode().split()
        os.kill(killed.pid, signal.SIGKILL)
        await killed.wait()
        assert living(int(pid))
        assert all(map(os.path.exists, folders))
    async with Child([sys.executable, "-c", worker]) as next_one:
        assert await next_one.read()
        assert not any(map(os.path.exists, folders))
        assert not living(int(pid))


def test_who_is_in_a_group_makes_none(tmp_path: Path) -> None:
    need_groups()
    group = ControlGroup(cgroups.place(os.getpid()).folders, memory_bytes=256 << 20, tasks=64)
    try:
        code = (
            "import os; from gym_runtime.processes import cgroups; print(cgroups.place(os.getpid()).why_not)"
        )
        told = subprocess.run(group.joining([sys.executable, "-c", code]), capture_output=True, check=True)
    finally:
        while not group.remove():
            pass
    assert told.stdout == b"this process is in a group with limits itself\n"


# -- where groups may be made -------------------------------------------------------------------------

UNIFIED_MOUNT = "24 23 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"


@pytest.mark.parametrize(
    ("own", "mounts", "expected"),
    [
        pytest.param(
            "0::/system.slice/gym.service",
            UNIFIED_MOUNT,
            {"": ("/sys/fs/cgroup/system.slice/gym.service", "/sys/fs/cgroup")},
            id="a unit",
        ),
        pytest.param("0::/", UNIFIED_MOUNT, {"": ("/sys/fs/cgroup", "/sys/fs/cgroup")}, id="a container"),
        pytest.param(
            "0::/docker/123/inner",
            "24 23 0:22 /docker/123 /sys/fs/cgroup ro - cgroup2 cgroup rw",
            {"": ("/sys/fs/cgroup/inner", "/sys/fs/cgroup")},
            id="a container that sees the host's names",
        ),
        pytest.param("0::/../other", UNIFIED_MOUNT, {}, id="outside of its namespace"),
        pytest.param(
            "3:pids:/a\n2:memory:/b\n1:cpu,cpuacct:/c\n0::/d",
            "1 2 0:3 / /cg/memory rw - cgroup cgroup rw,memory\n"
            "4 5 0:6 / /cg/pids rw shared:1 - cgroup none rw,pids\n"
            "6 7 0:8 / /cg/unified rw - cgroup2 cgroup2 rw\n9 10 0:11 / / rw - ext4 /dev/vda rw",
            {
                "memory": ("/cg/memory/b", "/cg/memory"),
                "pids": ("/cg/pids/a", "/cg/pids"),
                "": ("/cg/unified/d", "/cg/unified"),
            },
            id="version 1",
        ),
        pytest.param("0::/elsewhere", "1 2 0:3 /here /cg rw - cgroup2 cgroup2 rw", {}, id="not in view"),
        pytest.param("", "", {}, id="none"),
    ],
)
def test_own_groups_are_found(own: str, mounts: str, expected: dict[str, tuple[str, str]]) -> None:
    found = own_groups(own, mounts)
    assert found == {name: (Path(folder), Path(top)) for name, (folder, top) in expected.items()}


def unit(folder: Path, *, offered: str = "cpu memory pids", handed_over: bool = True) -> Path:
    """A folder like that of a group of version 2."""
    folder.mkdir(parents=True)
    (folder / "cgroup.controllers").write_text(offered)
    for file in ("cgroup.subtree_control", "cgroup.procs"):
        (folder / file).touch()
    if handed_over:
        try:
            os.setxattr(folder, "user.delegate", b"1")
        except OSError as error:
            pytest.skip(f"no extended attributes on {folder}: {error}")
    return folder


def test_a_unit_that_was_handed_over_gives_limits_to_groups_below_it(tmp_path: Path) -> None:
    own = unit(tmp_path / "system.slice" / "gym.service")
    assert prepare({"": (own, tmp_path)}) == (own,)
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids"
    # Who has moved out of the way, or was started in a group beside, finds the same one.
    assert prepare({"": (own / LEAF, tmp_path)}) == (own,)
    assert prepare({"": (own / "workers", tmp_path)}) == (own,)


def test_a_containers_topmost_group_is_its_own(tmp_path: Path) -> None:
    top = unit(tmp_path / "cgroup", handed_over=False)
    assert prepare({"": (top, top)}) == (top,)
    assert prepare({"": (top / LEAF, top)}) == (top,)


def test_others_groups_are_left_alone_and_the_reason_is_said(tmp_path: Path) -> None:
    not_ours = unit(tmp_path / "user.slice" / "terminal.scope", handed_over=False)
    with pytest.raises(OSError, match=r"terminal.scope was not handed over .*Delegate=yes"):
        prepare({"": (not_ours, tmp_path)})
    assert (not_ours / "cgroup.subtree_control").read_text() == ""
    with pytest.raises(OSError, match="does not offer memory and pids"):
        prepare({"": (unit(tmp_path / "poor.service", offered="cpu"), tmp_path)})
    with pytest.raises(OSError, match="in a group with limits itself"):
        prepare({"": (unit(tmp_path / f"{PREFIX}1-2-3"), tmp_path)})
    with pytest.raises(OSError, match="no control groups for memory and pids"):
        prepare({"memory": (tmp_path, tmp_path)})


def test_version_1_has_a_group_in_each_hierarchy(tmp_path: Path) -> None:
    memory, pids, unified = tmp_path / "memory" / "own", tmp_path / "pids", tmp_path / "unified"
    own = {"pids": (pids, pids), "memory": (memory, tmp_path), "": (unified, unified)}
    assert prepare(own) == (memory, pids)
    assert prepare({"memory": (memory, memory), "pids": (memory, memory)}) == (memory,)


def test_a_group_of_version_2_is_limited_killed_and_read_by_its_files(tmp_path: Path) -> None:
    group = ControlGroup([tmp_path], memory_bytes=256 << 20, tasks=64)
    (folder,) = group.folders
    (folder / "memory.events").write_text("low 0\nmax 9\noom 0\noom_kill 2\n")
    assert group.excess() is None  # it was for the limit of another
    (folder / "memory.events").write_text("low 0\nmax 9\noom 1\noom_kill 2\n")
    assert group.excess() == "more than 256 MiB of memory in all processes together"
    (folder / "cgroup.kill").touch()
    group.kill()
    assert (folder / "cgroup.kill").read_text() == "1"
    assert not group.remove()
