"""Replies that a verifier executes reach no file, variable, socket or process of the host."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from gym_runtime.errors import UsageError
from gym_sandbox import readable_files
from gym_sandbox.sandbox_errors import SetupError
from hostile.isolation.careless_verifier import judge, said, still_judges
from sandbox.programs import NEEDS_ISOLATION

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(60),
    NEEDS_ISOLATION,
]


async def test_no_file_of_the_host_is_written(module: Path, tmp_path: Path) -> None:
    marks = [
        tmp_path / "mark",
        Path(readable_files.__file__).with_name("mark"),
        Path("/var/tmp/gym-isolation-mark"),
    ]
    told = await said(
        module, f"said = [attempt(open, path, 'w') for path in {[str(path) for path in marks]}]"
    )
    assert "done" not in told
    assert not [path for path in marks if path.exists()]


async def test_no_file_of_the_host_is_read_but_code(module: Path, tmp_path: Path) -> None:
    for name in (".env", ".git"):
        (tmp_path / name).mkdir() if name == ".git" else (tmp_path / name).write_text("KEY=sk-secret")
    (tmp_path / ".git" / "config").write_text("token")
    told = await said(
        module,
        f"""
home = {str(Path.home())!r}
said = [attempt(os.listdir, home + '/.ssh'), attempt(lambda: open('/etc/passwd').read()),
        attempt(lambda: open({str(tmp_path / ".env")!r}).read()),
        attempt(os.listdir, {str(tmp_path / ".git")!r})]
""",
    )
    gone = 2 * ["FileNotFoundError"]
    assert told in (str([*gone, covered, "done []"]) for covered in ("done ", "PermissionError"))


async def test_no_variable_is_seen_but_those_that_name_folders(
    module: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tmp_path_factory.mktemp("tables")
    tables.chmod(0o755)
    (tables / "one").write_text("1")
    monkeypatch.setenv("GYM_TEST_TABLES", str(tables))
    seen = (await judge(module, "42")).fields["seen"]
    assert seen == {"OPENAI_API_KEY": "", "GYM_TEST_TABLES": str(tables)}
    assert await said(module, f"said = attempt(os.listdir, {str(tables)!r})") == "done ['one']"
    environments = (
        "b''.join(open(f'/proc/{pid}/environ', 'rb').read() for pid in os.listdir('/proc') if pid.isdigit())"
    )
    assert "secret" not in await said(module, f"said = attempt(lambda: {environments})")
    monkeypatch.setenv("GYM_TEST_TABLES", str(tables / "one"))
    with pytest.raises(UsageError, match="is not a folder"):
        await judge(module, "42")


async def test_no_socket_reaches_the_host(module: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = await said(
            module,
            f"import socket\nsaid = attempt(socket.create_connection, ('127.0.0.1', {port}), 5)",
        )
    assert told == "ConnectionRefusedError"


async def test_the_process_that_forks_is_out_of_reach(module: Path) -> None:
    code = """
import ctypes, resource, signal
parent, library = os.getppid(), ctypes.CDLL(None, use_errno=True)
said = [
    attempt(open, f"/proc/{parent}/mem", "r+b"),
    attempt(os.listdir, f"/proc/{parent}/fd"),
    attempt(resource.prlimit, parent, resource.RLIMIT_CPU, (1, 1)),
    attempt(os.setpriority, os.PRIO_PROCESS, parent, 19),
    attempt(os.sched_setaffinity, parent, {0}),
    library.ptrace(16, parent, 0, 0),
]
"""
    assert await said(module, code) == str([*5 * ["PermissionError"], -1])
    await still_judges(module)


def test_a_module_that_only_root_can_read_is_refused_with_the_remedy(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("for root")
    (tmp_path / "closed").mkdir(mode=0o700)
    with pytest.raises(SetupError, match=r"only root can read .*chmod -R o\+rX"):
        readable_files.of_verifier([tmp_path / "closed" / "careless.py"])
