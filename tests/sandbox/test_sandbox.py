"""Isolation: the network, files, secrets and processes that a program does not reach."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.lowlevel
import pytest
from gym_sandbox import Sandbox, Script, python
from gym_testing.background import hosting
from runtime.bounds import bounds as bounds
from sandbox.programs import NEEDS_ISOLATION, run, said

pytestmark = [pytest.mark.anyio, NEEDS_ISOLATION]


ROOT = Path(__file__).parents[2]


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


async def test_programs_that_start_at_once_leave_the_event_loop_its_turns() -> None:
    passes, starts = 0, list[int]()

    async def count_passes() -> None:
        nonlocal passes
        while True:
            await anyio.lowlevel.checkpoint()
            passes += 1

    async with Sandbox() as box, hosting() as counting:
        counting.start_soon(count_passes)

        async def start() -> None:
            async with box.start(["/bin/sleep", "60"]):
                starts.append(passes)

        async with anyio.create_task_group() as tasks:
            for _ in range(24):
                tasks.start_soon(start)
    assert len(set(starts)) == len(starts) == 24


OWN_VIEW = """import os
token = os.urandom(8).hex()

def main(arguments):
    folder, = arguments
    print(token, open(f"{folder}/shown").read(), os.listdir("/tmp") == [folder.split("/")[2]])
    for path in (f"{folder}/new", "/tmp/new"):
        try:
            open(path, "w").close()
            print("written")
        except OSError as error:
            print(error.strerror)

if __name__ == "__main__":
    import sys
    main(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["/tmp", "/var/tmp"])
async def test_scripts_that_see_a_folder_share_their_imports_and_nothing_else(place: str) -> None:
    """Also where the folder is in `/tmp`, of which each program has one of its own."""
    said: list[str] = []
    with TemporaryDirectory(dir=place) as folder:
        os.chmod(folder, 0o755)
        await anyio.Path(folder, "shown").write_text("hello")
        async with Sandbox(folders=(folder,)) as box:
            for _ in range(2):
                async with box.start(Script(OWN_VIEW, (folder,), own_view=True)) as child:
                    words = b""
                    while piece := await child.read():
                        words += piece
                said.append(words.decode())
    assert said[0] == said[1]
    first, *others = said[0].splitlines()
    assert first.split()[1:] == ["hello", str(place == "/tmp")]
    assert others == ["Read-only file system", "written"]


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
            [*python.python_command(), "-c", "import anyio, idna; print(anyio.__file__)"], timeout_s=10
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
