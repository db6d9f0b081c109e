"""Ways out of the sandbox, tried from within: each is closed, and nothing of a program outlives it."""

from __future__ import annotations

import gc
import os
import socket
import tempfile
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import anyio
import psutil
import pytest
from gym_sandbox import Interpreter, Interrupted, Limits, Result, Sandbox, bubblewrap, python, warm
from gym_sandbox.processes import cgroups
from runtime.bounds import bounds as bounds
from runtime.bounds import need_groups
from sandbox.programs import NEEDS_ISOLATION

pytestmark = [pytest.mark.anyio, NEEDS_ISOLATION]

SMALL = Limits(memory_bytes=256 << 20, disk_bytes=4 << 20)
HOARD = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        hoard = bytearray(os.urandom(1 << 20) * 100)
        time.sleep(600)
"""


async def run(
    code: str, limits: Limits | None = None, *, timeout_s: float = 15, packages: tuple[str, ...] = ()
) -> Result:
    async with Sandbox(limits, packages=packages) as box:
        return await box.run([*python.python_command(), "-c", code], timeout_s=timeout_s)


async def said(code: str, *, packages: tuple[str, ...] = ()) -> list[str]:
    result = await run(code, packages=packages)
    assert result.exit_code == 0, result
    return result.stdout.decode().splitlines()


async def test_system_calls_that_no_namespace_covers_are_refused() -> None:
    code = """
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
column = ["x86_64", "aarch64"].index(platform.machine())
def call(*numbers, arguments=(0, 0, 0, 0, 0)):
    ctypes.set_errno(0)
    libc.syscall(numbers[column], *arguments)
    print(errno.errorcode.get(ctypes.get_errno()))
call(101, 117)  # ptrace
call(250, 219, arguments=(0, -3, 0, 0, 0))  # keyctl, the worker's session keyring
call(425, 425, arguments=(4, ctypes.create_string_buffer(200), 0, 0, 0))  # io_uring_setup
call(323, 282, arguments=(1, 0, 0, 0, 0))  # userfaultfd
call(321, 280)  # bpf
call(56, 220, arguments=(0x10000000 | 17, 0, 0, 0, 0))  # clone into a user namespace
call(435, 435)  # clone3, whose flags a filter cannot see
"""
    assert await said(code) == 6 * ["EPERM"] + ["ENOSYS"]


async def test_only_sockets_that_the_network_namespace_confines_can_be_made() -> None:
    code = """
import socket, errno
VSOCK, CRYPTO, PACKET = 40, 38, 17
for family in (VSOCK, CRYPTO, PACKET, socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
        print("made")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    assert await said(code) == 3 * ["EAFNOSUPPORT"] + 3 * ["made"]


async def test_threads_and_processes_work_all_the_same() -> None:
    code = """
import multiprocessing, subprocess, threading
thread = threading.Thread(target=print, args=("thread",))
thread.start()
thread.join()
print(subprocess.run(["echo", "process"], capture_output=True, text=True).stdout.strip())
print(multiprocessing.get_context("fork").Pool(2).map(abs, [-1, 2]))
"""
    assert await said(code) == ["thread", "process", "[1, 2]"]


async def test_the_hosts_abstract_sockets_are_out_of_reach() -> None:
    name = f"gym-sandbox-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        code = f"""
import socket
try:
    socket.socket(socket.AF_UNIX).connect("\\0{name}")
    print("connected")
except ConnectionRefusedError:
    print("refused")
"""
        assert await said(code) == ["refused"]


async def test_descriptors_of_the_worker_are_not_inherited() -> None:
    code = """
import os
for number in os.listdir("/proc/self/fd"):
    try:
        print(os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
    except FileNotFoundError:
        pass
"""
    with tempfile.TemporaryFile() as file:
        os.set_inheritable(file.fileno(), True)
        assert set(await said(code)) <= {"pipe", "/dev/null", "anon_inode"}


async def test_nothing_that_is_shown_can_be_changed_or_gain_privilege() -> None:
    code = """
import errno, glob, os, shutil, subprocess
def attempt(function, *arguments):
    try:
        function(*arguments)
        print("done")
    except OSError as error:
        print(errno.errorcode[error.errno])
attempt(open, "/packages/anyio/__init__.py", "a")
attempt(os.unlink, "/packages/anyio/__init__.py")
attempt(os.link, "/packages/anyio/__init__.py", "/tmp/linked")
attempt(os.chmod, "/packages/anyio/__init__.py", 0o777)
attempt(os.setuid, 0)
attempt(os.mknod, "/tmp/device", 0o60666, os.makedev(8, 0))
shutil.copy("/usr/bin/id", "/tmp/id")
os.chmod("/tmp/id", 0o6755)
print(subprocess.run(["/tmp/id", "-u"], capture_output=True, text=True).stdout.strip() == str(os.getuid()))
"""
    answers = await said(code, packages=("anyio",))
    assert set(answers[:6]) <= {"EROFS", "EXDEV", "EPERM", "EACCES", "EINVAL"}
    assert answers[6:] == ["True"]


async def test_packages_that_are_asked_for_know_their_versions_and_no_others_do() -> None:
    """Some read their own at import, as httpx2 does, which servers of MCP's SDK import."""
    code = """
from importlib.metadata import PackageNotFoundError, version
for name in ("anyio", "idna", "msgspec"):
    try:
        print(version(name))
    except PackageNotFoundError:
        print("none")
"""
    answers = await said(code, packages=("anyio",))
    assert answers == [version("anyio"), version("idna"), "none"]


async def test_who_signals_everyone_reaches_only_itself() -> None:
    async with Interpreter() as other:
        await other.execute("x = 6", 10)
        result = await run("import os; os.kill(-1, 9)")
        assert b"ProcessLookupError" in result.stderr
        assert (await other.execute("x", 10)).value == "6"


async def test_files_are_seen_by_nobody_else_and_are_gone_at_the_end() -> None:
    name = f"gym-sandbox-test-{os.getpid()}"
    places = ("/tmp", "/dev/shm")
    look = f"import glob; print(sum((glob.glob(place + '/*') for place in {places}), []))"
    async with Interpreter() as other:
        for place in places:
            assert (await other.execute(f"open('{place}/{name}', 'w').close()", 10)).error is None
        assert await said(look) == ["[]"]
        assert not [place for place in places if name in os.listdir(place)]
    async with Interpreter() as again:
        assert (await again.execute(look, 10)).stdout == "[]\n"


@pytest.mark.slow
@pytest.mark.parametrize("weak", [False, True])
async def test_what_no_one_can_delete_easily_is_deleted(
    weak: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_SANDBOX", "weak" if weak else "bubblewrap")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = r"""
import os
os.mkdir(b"\xff\n\x01 -rf *")
open(b"-rf", "w").close()
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
os.mkdir("locked")
open("locked/file", "w").close()
os.chmod("locked", 0)
"""
    assert (await run(code)).exit_code == 0
    assert not [name for name in os.listdir(tmp_path) if name.startswith("gym-sandbox-")]


@pytest.mark.parametrize("counted", [True, False])
async def test_memory_that_is_no_process_own_cannot_be_had(
    counted: bool, bounds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if counted and bounds == "watched":
        pytest.skip("in this way no control group counts")
    if counted:
        need_groups()
    else:
        monkeypatch.setattr(cgroups, "place", lambda process: cgroups.Place(why_not="a test"))
    code = """
import ctypes, errno, mmap, platform
libc = ctypes.CDLL(None, use_errno=True)
column = ["x86_64", "aarch64"].index(platform.machine())
for numbers in ((319, 279), (447, 447), (29, 194), (68, 186), (64, 190), (240, 180)):
    ctypes.set_errno(0)
    libc.syscall(numbers[column], 0, 1 << 20, 0o1600, 0)
    print(errno.errorcode.get(ctypes.get_errno()))
try:
    mmap.mmap(-1, 1 << 20)
    print("mapped")
except PermissionError:
    print("refused")
try:
    print(len(open("/dev/zero", "rb").read(1)))
except PermissionError:
    print("refused")
"""
    assert await said(code) == 6 * ["EPERM"] + (["mapped", "1"] if counted else 2 * ["refused"])


async def test_what_isolates_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_SANDBOX", "weak")
    assert bubblewrap.kind() == "weak"
    monkeypatch.setenv("GYM_SANDBOX", "bubblewrap")
    assert bubblewrap.kind() in ("cgroups", "seccomp")
    monkeypatch.setattr(cgroups, "place", lambda process: cgroups.Place(why_not="a test"))
    assert bubblewrap.kind() == "seccomp"


@pytest.mark.slow
async def test_the_memory_of_all_processes_together_is_limited() -> None:
    result = await run(f"{HOARD}time.sleep(600)", SMALL, timeout_s=60)
    assert result.exit_code == 128 + 9
    assert b"MiB of memory in" in result.stderr
    async with Interpreter(SMALL) as session:
        lost = await session.execute(f"{HOARD}time.sleep(600)", 60)
        assert lost.killed
        assert "the interpreter ended" in str(lost.error)
        assert "MiB of memory in" in str(lost.error)


async def test_in_the_weak_mode_processes_are_limited_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_SANDBOX", "weak")
    code = "import os, time\nfor _ in range(40):\n    if os.fork() == 0: time.sleep(600)\ntime.sleep(600)"
    result = await run(code, Limits(processes=16), timeout_s=60)
    assert b"processes at a time, more than" in result.stderr


@pytest.mark.slow
async def test_output_without_end_costs_no_memory_and_its_writers_are_killed() -> None:
    before = psutil.Process().memory_info().rss
    # The program ends at once; the pipes stay open in who goes on writing.
    code = "import os\nif os.fork() == 0:\n  os.setsid()\n  while True: os.write(1, b'x' * 65536)"
    result = await run(code)
    assert result.exit_code == 0
    endless = await run("import os\nwhile True: os.write(1, b'x' * 65536)", timeout_s=2)
    assert endless.timed_out
    assert (len(endless.stdout), endless.truncated) == (Limits().output_bytes, True)
    assert psutil.Process().memory_info().rss - before < 30 << 20


@pytest.mark.slow
async def test_many_sandboxes_leave_no_descriptor_and_no_process() -> None:
    async def once() -> None:
        with anyio.move_on_after(10):
            assert (await run("pass")).exit_code == 0

    await once()  # what is there once for all
    gc.collect()  # fork servers of the event loops of other tests end with these
    me = psutil.Process()
    descriptors, processes = me.num_fds(), len(me.children(recursive=True))
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(once)
    assert (me.num_fds(), len(me.children(recursive=True))) == (descriptors, processes)


ATTACKS = """
import ctypes, errno, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def attempt(function, *arguments):
    try:
        return function(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
print(sorted(name for name in os.listdir("/proc") if name.isdigit()), os.getpid(), os.getppid())
for pid in (0, 1):  # the first is the template's, as a parent that is not in this namespace
    print(attempt(open, f"/proc/{pid}/mem", "r+b"), attempt(os.listdir, f"/proc/{pid}/fd"))
    print(libc.ptrace(16, pid, 0, 0), attempt(os.readlink, f"/proc/{pid}/root"))
print([attempt(os.kill, pid, number) for pid in (1, -1) for number in (signal.SIGKILL, signal.SIGSTOP)])
open_files = [attempt(os.readlink, f"/proc/self/fd/{number}") for number in range(64)]
own = ("pipe:", "/dev/null", "/tmp/.std", "ENOENT")  # a session's output goes to files
print([file for file in open_files if not file.startswith(own)])
print(libc.umount2(b"/tmp", 2), libc.mount(b"x", b"/mnt", b"tmpfs", 0, 0), libc.unshare(0x10000000))
print([os.listdir(at) for at in ("/tmp", "/dev/shm", "/dev/pts")], ".." in open("/proc/self/cgroup").read())
"""


async def test_a_template_is_out_of_reach_of_what_it_forks() -> None:
    """A session runs what its template has imported, a command executes Python."""
    async with Interpreter() as session:
        done = await session.execute(ATTACKS, 10)
        lines = done.stdout.splitlines()
        assert done.error is None
        assert (await session.execute("1", 10)).value == "1"
    assert lines == await said(ATTACKS)
    assert lines[0] == "['1', '2'] 2 1"
    assert lines[1:3] == ["ENOENT ENOENT", "-1 ENOENT"]
    assert lines[3:5] == ["EACCES EACCES", "-1 EACCES"]
    assert lines[5] == "[None, None, 'ESRCH', 'ESRCH']"
    assert lines[6:] == ["[]", "-1 -1 -1", "[[], [], ['ptmx']] False"]


LEAVES = """
import os, signal, subprocess
for place in ("/tmp", "/dev/shm"):
    try:
        with open(place + "/filled", "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
    except OSError:
        pass
    os.chmod(place, 0)
os.setsid() if os.getpid() != os.getpgid(0) else None
if os.fork() == 0:
    os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    while True:
        pass
terminal, _ = os.openpty()
import json
json.loads = None
left = "left-by-the-" + "program"
"""
LOOKS = r"""
import os, re
found = [len([name for name in os.listdir("/proc") if name.isdigit()]), os.listdir("/dev/pts")]
for place in ("/tmp", "/dev/shm"):
    found += [os.listdir(place), os.statvfs(place).f_bfree > 0.9 * os.statvfs(place).f_blocks]
name, memory = re.compile(rb"left-by(?:-the-program)"), open("/proc/self/mem", "rb")
for line in open("/proc/self/maps"):
    first, end = (int(number, 16) for number in line.split()[0].split("-"))
    if line.split()[1].startswith("rw"):
        memory.seek(first)
        found += name.findall(memory.read(end - first))
found
"""


async def test_what_a_program_leaves_is_not_there_for_the_next_of_the_same_template() -> None:
    async with Interpreter(SMALL) as before:
        clean = (await before.execute(LOOKS, 20)).value
    assert clean == "[2, ['ptmx'], [], True, [], True]"
    async with Interpreter(SMALL) as leaves:
        done = await leaves.execute(f"{LEAVES}\n# {'left-by-the-program' * 50}", 20)
        assert done.error is None, done
        async with Interpreter(SMALL) as beside:
            assert (await beside.execute(LOOKS, 20)).value == clean
    async with Interpreter(SMALL) as after:
        assert (await after.execute(LOOKS, 20)).value == clean
    result = await run("import os; print(os.listdir('/tmp'))", SMALL)
    assert result.stdout == b"[]\n", result


async def test_a_template_that_was_killed_is_replaced() -> None:
    async with Interpreter() as session:
        await session.execute("1", 10)
        templates = [one for one in psutil.Process().children(recursive=True) if is_template(one)]
        assert templates
        for template in templates:
            with suppress(psutil.NoSuchProcess):  # a fork ends with the first
                template.kill()
        with pytest.raises(Interrupted):
            await session.execute("1", 10)
        assert (await session.execute("2", 10)).value == "2"


def is_template(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it has just ended
        return any("open(0, 'rb', closefd=False)" in word for word in process.cmdline())
    return False


async def test_where_a_template_cannot_make_sandboxes_each_starts_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bubblewrap, "CAPABILITIES", ())
    async with Interpreter() as session:
        assert (await session.execute("6 * 7", 10)).value == "42"
        if os.geteuid() == 0:
            assert not isinstance(session._child, warm.Warm)  # pyright: ignore[reportPrivateUsage]
    assert await said("print(1)") == ["1"]
