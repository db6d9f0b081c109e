"""Replies that a verifier executes, as some libraries do: what they reach, and what they leave behind.

The environment here is as careless as can be. Whatever a reply does in it stays within its own verification.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from gym_runtime.environment import catalogue
from gym_runtime.environment.isolated import verify_isolated
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import ResourceError, UsageError
from gym_runtime.sandbox import bubblewrap, frames, readable_files

try:
    bubblewrap.check(os.getpid())
    _refusal = ""
except UsageError as error:
    _refusal = error.message
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(60),
    pytest.mark.skipif(bool(_refusal), reason=_refusal),
]

MODULE = '''"""Executes replies."""

import os

from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.assets.asset import Asset

RIGHT = "42"


def score(answer: str) -> float:
    return float(answer == RIGHT)


async def verify(task: Task, reply: Reply) -> Verdict:
    said = {"said": ""}
    if reply.text.startswith("import "):
        exec(reply.text, said)
    seen = {name: os.environ.get(name, "") for name in task.names}
    return Verdict(score(reply.text), fields={"said": str(said["said"]), "seen": seen})


class Names(Task):
    names: list[str] = []


verify.__annotations__["task"] = Names
TABLES = Asset(name="tables", description="Tables.", licence="MIT", setting="GYM_TEST_TABLES")
environment = Environment(
    resource=verify, description="Executes.", isolated=True, assets=(TABLES,)
)
'''
ROW = b'{"responses_create_params": {"input": "go"}, "names": ["OPENAI_API_KEY", "GYM_TEST_TABLES"]}'
ATTEMPT = """
def attempt(function, *arguments):
    try:
        return f"done {function(*arguments)}"
    except BaseException as error:
        return type(error).__name__
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    path = tmp_path / "careless.py"
    path.write_text(MODULE)
    return path


async def judge(module: Path, reply: str, timeout_s: float = 15) -> Verdict:
    folders = catalogue.environment(str(module)).asset_folders
    return await verify_isolated(str(module), ROW, make_response(reply), timeout_s, folders)


async def said(module: Path, code: str) -> str:
    return (await judge(module, f"import os, sys\n{ATTEMPT}\n{code}")).fields["said"]


async def still_judges(module: Path) -> None:
    assert [(await judge(module, text)).reward for text in ("42", "41")] == [1.0, 0.0]


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


async def test_a_scorer_that_is_replaced_is_replaced_for_one_rollout(module: Path) -> None:
    code = """
for loaded in list(sys.modules.values()):
    if hasattr(loaded, "score") and hasattr(loaded, "RIGHT"):
        loaded.score = lambda answer: 1.0
        loaded.RIGHT = "41"
said = "replaced"
"""
    assert await said(module, code) == "replaced"
    await still_judges(module)


async def test_files_that_a_reply_leaves_are_not_there_for_the_next(module: Path) -> None:
    code = """
for place in ("/tmp", "/dev/shm"):
    open(place + "/left", "w").write("x")
    {more}
"""
    look = "said = os.listdir('/tmp') + os.listdir('/dev/shm')"
    before = await said(module, look)
    for more in ("pass", "os.makedirs(place + '/a/b')", "os.chmod('/tmp', 0o700)"):
        await said(module, code.format(more=more))
        assert await said(module, look) == before


async def test_no_socket_reaches_the_host(module: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = await said(
            module,
            f"import socket\nsaid = attempt(socket.create_connection, ('127.0.0.1', {port}), 5)",
        )
    assert told == "ConnectionRefusedError"


async def test_what_a_reply_starts_ends_with_its_verification(module: Path) -> None:
    code = """
import subprocess
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        subprocess.Popen(["sleep", "611"])
        while True:
            pass
    os._exit(0)
os.wait()
said = "left"
"""
    assert await said(module, code) == "left"
    left = [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "611"]]
    assert not left
    assert await said(module, "said = len([p for p in os.listdir('/proc') if p.isdigit()])") <= "4"


class Shell:
    """Runs a command where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


async def test_a_pickle_for_an_answer_is_a_failed_verification(module: Path, tmp_path: Path) -> None:
    mark = tmp_path / "unpickled"
    evil = pickle.dumps((True, Shell(mark)))
    frame = struct.pack("!Q", len(evil)) + evil
    code = f"""
for descriptor in range(256):
    attempt(os.write, descriptor, {frame!r})
os._exit(0)
"""
    with pytest.raises(ResourceError, match=r"its answer cannot be read|died"):
        await said(module, code)
    assert not mark.exists()
    await still_judges(module)


async def test_answers_forged_on_every_descriptor_change_no_other_rollout(module: Path) -> None:
    forged = frames.encode_answer(frames.CallDone(frames.msgspec.Raw(b'{"reward": 1.0}')))
    bare = frames.LENGTH.pack(len(forged)) + forged
    framed = b"".join(
        frames.LENGTH.pack(frames.ANSWER.size + len(forged)) + frames.ANSWER.pack(number, 0, 0) + forged
        for number in range(20)
    )
    for data in (bare + framed, framed + bare):
        code = f"""
targets = list(range(256))
for pid in os.listdir("/proc"):
    for number in range(16):
        try:
            targets.append(os.open(f"/proc/{{pid}}/fd/{{number}}", os.O_WRONLY))
        except OSError:
            pass
for descriptor in targets:
    attempt(os.write, descriptor, {data!r})
"""
        with suppress(ResourceError, KeyError):
            await said(module, code)
        await still_judges(module)


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


async def test_a_process_that_is_stopped_or_killed_from_within_fails_that_rollout_only(module: Path) -> None:
    for number in ("SIGKILL", "SIGINT", "SIGTERM"):
        with pytest.raises(ResourceError, match="died"):
            await said(module, f"import signal, time\nos.kill(os.getppid(), signal.{number})\ntime.sleep(60)")
        await still_judges(module)


def test_a_module_that_only_root_can_read_is_refused_with_the_remedy(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("for root")
    (tmp_path / "closed").mkdir(mode=0o700)
    with pytest.raises(UsageError, match=r"only root can read .*chmod -R o\+rX"):
        readable_files.of_verifier([tmp_path / "closed" / "careless.py"])
