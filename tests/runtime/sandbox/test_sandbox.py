"""What a sandboxed program cannot do, whatever it tries."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import psutil
import pytest
from gym_runtime.errors import Busy, UsageError
from gym_runtime.processes.child import Child
from gym_runtime.sandbox import Interpreter, Limits, Result, Sandbox, bubblewrap, interpreter, python
from runtime.bounds import bounds as bounds

try:
    bubblewrap.check(os.getpid())
    _refusal = ""
except UsageError as error:
    _refusal = error.message
pytestmark = [pytest.mark.anyio, pytest.mark.skipif(bool(_refusal), reason=_refusal)]

ROOT = Path(__file__).parents[2]


async def run(
    code: str, limits: Limits | None = None, *, timeout_s: float = 10, stdin: bytes = b""
) -> Result:
    async with Sandbox(limits) as box:
        return await box.run([*python.command(), "-c", code], timeout_s=timeout_s, stdin=stdin)


async def said(code: str, limits: Limits | None = None) -> str:
    result = await run(code, limits)
    assert result.exit_code == 0, result
    return result.stdout.decode().strip()


async def test_a_program_runs_and_its_result_comes_back() -> None:
    result = await run(
        "import sys; print(sys.stdin.read()[::-1]); print('no', file=sys.stderr); exit(3)", stdin=b"abc"
    )
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"cba\n", b"no\n")
    assert not result.truncated
    assert not result.timed_out
    killed = await run("import os; os.kill(os.getpid(), 11)")
    assert killed.exit_code == 128 + 11
    async with Sandbox() as box:
        assert (await box.run(["no-such-program"], timeout_s=5)).exit_code == 127


# -- isolation ----------------------------------------------------------------------------------------


async def test_there_is_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"""
import socket
for address in (("127.0.0.1", {port}), ("1.1.1.1", 53)):
    try:
        socket.create_connection(address, timeout=1)
        print("connected")
    except OSError as error:
        print(type(error).__name__)
print(socket.if_nameindex())
"""
        answer = await said(code)
    assert "connected" not in answer
    assert answer.endswith("[(1, 'lo')]")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/etc/passwd",
        "/etc/hosts",
        str(ROOT / "README.md"),
        str(Path.home() / ".ssh"),
        "/home",
        "/var",
        "/sys",
        str(ROOT / "pyproject.toml"),
    ],
)
async def test_files_of_the_host_are_not_there(path: str) -> None:
    assert await said(f"import os; print(os.path.exists({path!r}))") == "False"


async def test_neither_are_installed_packages_unless_asked_for() -> None:
    assert (
        await said("import importlib.util as u; print(u.find_spec('gym_runtime'), u.find_spec('anyio'))")
        == "None None"
    )
    async with Sandbox(packages=["anyio", "no-such-package"]) as box:
        result = await box.run(
            [*python.command(), "-c", "import anyio, idna; print(anyio.__file__)"], timeout_s=10
        )
    assert result.stdout == b"/packages/anyio/__init__.py\n"


async def test_a_link_leads_nowhere_and_nothing_can_be_written_but_in_tmp() -> None:
    host = ROOT / "pyproject.toml"
    init = "/proc/1/root"
    code = f"""
import os
os.symlink({str(host)!r}, "/tmp/link")
os.symlink("{init}/etc/shadow", "/tmp/shadow")
for path in ("/tmp/link", "/tmp/shadow", "{init}{host}", "/proc/1/cwd/../../etc/shadow"):
    try:
        print(open(path).read())
    except OSError as error:
        print(type(error).__name__)
for path in ("/x", "/usr/x", "/dev/x", "/etc/x", "{python.runtime()}/x", "/proc/sys/kernel/hostname"):
    try:
        open(path, "w").write("x")
        print("written")
    except OSError as error:
        print(type(error).__name__)
open("/tmp/x", "w").write("x")
"""
    answers = (await said(code)).split("\n")
    assert len(answers) == 10
    assert set(answers) <= {"FileNotFoundError", "PermissionError", "OSError"}


async def test_no_secret_is_in_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_SECRET", "hunter2")
    code = """
import glob
for path in ["/proc/self/environ", *glob.glob("/proc/[0-9]*/environ"), *glob.glob("/proc/[0-9]*/cmdline")]:
    try:
        print(open(path, "rb").read())
    except OSError:
        print("refused")
import os
print(dict(os.environ))
"""
    answer = await said(code)
    assert "hunter2" not in answer
    assert "PLANTED" not in answer
    assert str(ROOT) not in answer


async def test_only_its_own_processes_are_seen_and_nobody_else_can_be_hurt() -> None:
    code = f"""
import os, ctypes
print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit())[-1] < 100)
for pid in ({os.getpid()}, 1):
    try:
        os.kill(pid, 9)
        print("sent")
    except OSError as error:
        print(type(error).__name__)
libc = ctypes.CDLL(None, use_errno=True)
mounted = libc.mount(b"x", b"/tmp", b"tmpfs", 0, 0)
print(libc.ptrace(16, {os.getpid()}, 0, 0), libc.unshare(0x10000000), mounted)
status = open("/proc/self/status").readlines()
print(os.getuid() != 0, [line for line in status if line.startswith(("CapEff", "NoNewPrivs"))])
"""
    answers = (await said(code)).split("\n")
    # A first process takes no signal from within, not even this one.
    assert answers[:3] == ["True", "ProcessLookupError", "sent"] or answers[:3] == [
        "True",
        "PermissionError",
        "sent",
    ]
    assert answers[3] == "-1 -1 -1"
    assert answers[4] == "True ['CapEff:\\t0000000000000000\\n', 'NoNewPrivs:\\t1\\n']"


# -- limits -------------------------------------------------------------------------------------------


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


async def test_output_is_cut_and_what_is_dropped_costs_no_memory() -> None:
    before = psutil.Process().memory_info().rss
    code = "import os\nfor _ in range(3000): os.write(1, b'x' * 65536); os.write(2, b'y' * 10)"
    result = await run(code, Limits(output_bytes=1000))
    assert (len(result.stdout), len(result.stderr), result.truncated) == (1000, 1000, True)
    assert psutil.Process().memory_info().rss - before < 30 << 20


MARK = "sandbox-test-mark"
STUBBORN = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]"
DAEMON = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        mark = {MARK!r}
        time.sleep(600)
    os._exit(0)
"""


def living(mark: str) -> list[int]:
    """Processes of the host with this mark in their command line."""
    found: list[int] = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if mark in " ".join(process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


@pytest.mark.parametrize(
    "code",
    [f"{STUBBORN}\nwhile True: time.sleep(1)", f"{STUBBORN}\nwhile True: pass", f"{DAEMON}\ntime.sleep(60)"],
)
async def test_who_takes_too_long_is_killed_with_all_its_descendants(code: str) -> None:
    start_s = time.monotonic()
    result = await run(f"# {MARK}\n{code}", timeout_s=0.3)
    assert result.timed_out
    assert time.monotonic() - start_s < 2
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
from gym_runtime.sandbox import Sandbox, python
program = "print('up', flush=True); import time; time.sleep(60) # {MARK}"
async def main():
    async with Sandbox() as box:
        async with box.start([*python.command(), "-c", program]) as child:
            print((await child.read()).decode(), flush=True)
            await anyio.sleep(60)
anyio.run(main)
"""
    async with Child([sys.executable, "-c", code]) as worker:
        assert (await worker.read()).strip() == b"up"
        assert len(living(MARK)) >= 2
        os.kill(worker.pid, signal.SIGKILL)
        with anyio.fail_after(5):
            while living(MARK):
                await anyio.sleep(0.01)


# -- the interpreter ----------------------------------------------------------------------------------


async def test_an_interpreter_remembers_and_survives_errors() -> None:
    async with Interpreter(aliases={"m": "math", "nope": "no_such_module"}) as session:
        assert not session.alive
        assert (await session.execute("x = 6\ndef f(y): return x * y", 5)).error is None
        done = await session.execute("print(f(7))\nf(2)", 5)
        assert (done.stdout, done.value, done.error) == ("42\n", "12", None)
        failed = await session.execute("print('so far')\n1 / 0", 5)
        assert failed.stdout == "so far\n"
        assert failed.error == (
            'Traceback (most recent call last):\n  File "<cell 3>", line 2, in <module>\n'
            "ZeroDivisionError: division by zero"
        )
        assert "SyntaxError" in str((await session.execute("x +", 5)).error)
        assert "SystemExit" in str((await session.execute("exit(3)", 5)).error)
        assert "EOFError" in str((await session.execute("input()", 5)).error)
        assert (await session.execute("m.floor(2.5)", 5)).value == "2"
        assert "NameError" in str((await session.execute("nope", 5)).error)
        late = await session.execute("while True: pass", 0.2)
        assert "TimeoutError" in str(late.error)
        assert not late.killed
        assert (await session.execute("x", 5)).value == "6"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
            "did not stop",
        ),
        ("import os; os._exit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "exit code"),
        (
            "import os\nfor n in range(3, 30):\n  try: os.write(n, b'\\xff' * 100)\n  except OSError: pass",
            "ended",
        ),
    ],
)
@pytest.mark.slow
async def test_an_interpreter_that_is_lost_says_so_and_begins_anew(code: str, why: str) -> None:
    async with Interpreter() as session:
        await session.execute("x = 6", 5)
        lost = await session.execute(code, 0.2)
        assert lost.killed
        assert why in str(lost.error)
        assert "all variables are lost" in str(lost.error)
        assert "NameError" in str((await session.execute("x", 5)).error)


async def test_an_interpreters_output_is_cut_and_its_descendants_end_with_it() -> None:
    async with Interpreter(Limits(output_bytes=100)) as session:
        done = await session.execute("import os; print('x' * 1000); os.system('echo y >&2')", 5)
        assert done.stdout == 100 * "x" + "\n[901 more bytes]"
        assert done.stderr == "y\n"
        await session.execute(
            f"import subprocess; subprocess.Popen(['sleep', '613', '{MARK}'][:2], env={{}})", 5
        )
        await session.execute(DAEMON, 5)
        first = await session.execute("import os; os.getpid()", 5)
        assert first.value is not None
    assert not session.alive
    assert not [
        process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", "613"]
    ]


async def test_interpreters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "ALIVE_AT_MOST", 1)
    async with Interpreter() as one, Interpreter() as other:
        await one.execute("x = 1", 5)
        with pytest.raises(Busy, match="1 interpreters are alive"):
            await other.execute("x = 2", 5)
        await one.close()
        assert (await other.execute("3", 5)).value == "3"


async def test_cancelling_an_execution_ends_the_session() -> None:
    async with Interpreter() as session:
        with anyio.move_on_after(0.3):
            await session.execute("while True: pass", 60)
        assert not session.alive


# -- refusals -----------------------------------------------------------------------------------------


async def test_without_isolation_it_refuses_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(text: str) -> Callable[[], str]:
        path = tmp_path / "bwrap"
        path.write_text(f"#!/bin/sh\necho {text} >&2; exit 1\n")
        path.chmod(0o755)
        return lambda: str(path)

    monkeypatch.setattr(bubblewrap, "binary", broken("No permissions to create a new namespace"))
    bubblewrap.check.cache_clear()
    try:
        with pytest.raises(
            UsageError, match=r"No permissions to create a new namespace.*pip install.*GYM_SANDBOX=weak"
        ):
            async with Sandbox():
                pass
        with pytest.raises(UsageError, match="cannot isolate on this machine"):
            await Interpreter().execute("1", 5)
    finally:
        bubblewrap.check.cache_clear()
    monkeypatch.setenv("GYM_SANDBOX", "none")
    with pytest.raises(UsageError, match="GYM_SANDBOX=none is unknown"):
        async with Sandbox():
            pass


@pytest.mark.slow
async def test_the_weak_mode_limits_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_SANDBOX", "weak")
    monkeypatch.setenv("PLANTED_SECRET", "hunter2")
    assert "hunter2" not in await said("import os; print(dict(os.environ))")
    assert await said("try: bytearray(1 << 33)\nexcept MemoryError: print('memory')") == "memory"
    result = await run(f"# {MARK}\n{STUBBORN}\nimport os\nos.fork()\nwhile True: pass", timeout_s=0.3)
    assert result.timed_out
    assert living(MARK) == []
    async with Interpreter() as session:
        assert (await session.execute("1 + 1", 5)).value == "2"


async def test_a_child_is_closed_twice_in_peace() -> None:
    async with Child(["cat"]) as child:
        await child.write(b"x")
        assert await child.read() == b"x"
        child.close_input()
        assert await child.wait() == 0
        await child.close()
