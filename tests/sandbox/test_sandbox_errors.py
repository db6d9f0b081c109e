"""Each error reaches the caller: by its class, and with words that say what to do."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest
from gym_sandbox import (
    Container,
    Interpreter,
    Limits,
    Sandbox,
    bubblewrap,
    frames,
    python,
    sandbox_errors,
    seccomp,
)
from gym_sandbox.pool import pool
from gym_sandbox.sandbox_errors import (
    FunctionRaised,
    NotPrepared,
    ProcessDied,
    SandboxError,
    SetupError,
    StartError,
)
from gym_sandbox.verifier import Verifier, verifier
from sandbox import called_functions
from sandbox.programs import NEEDS_ISOLATION

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

ALONE = """
import importlib, pkgutil, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("gym_") and not name.startswith("gym_sandbox"):
            raise ImportError(f"gym_sandbox imports {name}")
sys.meta_path.insert(0, Refuse())
import gym_sandbox
for module in pkgutil.walk_packages(gym_sandbox.__path__, "gym_sandbox."):
    if module.name != "gym_sandbox.repl":  # a script
        importlib.import_module(module.name)
print(*[name for name in gym_sandbox.__all__ if getattr(gym_sandbox, name)])
"""


def test_it_imports_nothing_of_the_runtime() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=False, timeout=50
    )
    assert ran.returncode == 0, ran.stderr
    assert {"Sandbox", "Interpreter", "Container", "Limits", "SandboxError"} <= set(ran.stdout.split())


def test_what_may_succeed_later_says_so() -> None:
    kinds = {one.__name__ for one in SandboxError.__subclasses__() if one.retryable}
    assert kinds == {"Interrupted", "TooManyInterpreters"}
    assert all(kind in (sandbox_errors.__doc__ or "") for kind in map(_name, SandboxError.__subclasses__()))


def _name(kind: type) -> str:
    return kind.__name__


async def _enter() -> None:
    async with Sandbox():
        pass


async def _execute() -> None:
    async with Interpreter() as session:
        await session.execute("1", 5)


async def _start_container() -> None:
    async with Container(directory="work"):
        pass


@pytest.mark.parametrize("use", [_enter, _execute, _start_container])
async def test_a_machine_that_cannot_isolate_is_told_with_the_remedy(
    use: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bubblewrap, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(bubblewrap.SETTING, raising=False)
    bubblewrap.check.cache_clear()
    with pytest.raises(SetupError, match=r"needs bubblewrap, which is not installed: install .*=weak"):
        await use()


@pytest.mark.parametrize("use", [_enter, _execute, _start_container])
async def test_a_setting_that_is_unknown_is_refused(
    use: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(bubblewrap.SETTING, "strong")
    with pytest.raises(SetupError, match="GYM_SANDBOX=strong is unknown; set it to 'bubblewrap'"):
        await use()


def test_a_processor_whose_calls_are_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    seccomp.program.cache_clear()
    with pytest.raises(SetupError, match="x86_64 and aarch64, not of riscv64"):
        seccomp.program()
    seccomp.program.cache_clear()


@pytest.mark.slow
@NEEDS_ISOLATION
async def test_a_sandbox_whose_isolation_fails_is_no_result() -> None:
    async with Sandbox(folders=("/no/such/folder",)) as box:
        with pytest.raises(StartError, match=r"^the sandbox does not start: .*no/such/folder"):
            await box.run(["/bin/true"], timeout_s=5)


async def test_an_engine_that_cannot_be_executed_does_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "apptainer").write_bytes(b"\x7fELF")
    (tmp_path / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("GYM_CONTAINERS", "apptainer")
    with pytest.raises(StartError, match="apptainer cannot be started"):
        await Container("image", directory="/").start()


async def call(kind: Verifier, *arguments: object) -> msgspec.Raw:
    return await pool().call(kind, frames.encode_arguments(arguments), 5.0)


@NEEDS_ISOLATION
async def test_what_a_function_raises_reaches_its_caller_in_the_words_of_explain() -> None:
    with pytest.raises(FunctionRaised, match=r"^ValueError: no such \? word$") as plain:
        await call(verifier(called_functions.fail_unreadably))
    assert (plain.value.name, plain.value.stage) == ("ValueError", "")
    explained = verifier(called_functions.fail, explain=called_functions.explained_shortly)
    with pytest.raises(FunctionRaised, match=r"^x{4000}$") as own:
        await call(explained, "x" * 5000)
    assert (own.value.name, own.value.stage) == ("Short", "somewhere")
    assert bytes(await call(verifier(called_functions.echo), "said")) == b'"said"'


@pytest.mark.slow
@NEEDS_ISOLATION
async def test_a_process_that_dies_or_cannot_prepare_says_why() -> None:
    with pytest.raises(ProcessDied, match=r"^exit code 3$"):
        await call(verifier(called_functions.leave), 3)
    with pytest.raises(ProcessDied, match=r"^signal 9$"):
        await call(verifier(called_functions.kill_itself))
    with pytest.raises(NotPrepared, match="it ended while it imported what it needs"):
        await call(verifier(called_functions.echo, called_functions.leave_early), "said")
    with pytest.raises(FunctionRaised, match=r"^ValueError: not today$"):
        await call(verifier(called_functions.echo, called_functions.fail, ("not today",)), "said")


FORKS = "import os\nfor n in range(99): os.fork() or os.read(os.pipe()[0], 1)"


@NEEDS_ISOLATION
@pytest.mark.parametrize(
    ("limits", "code", "said"),
    [
        (Limits(file_bytes=1 << 20), "open('a', 'wb').write(bytes(2 << 20))", "File too large"),
        (
            Limits(disk_bytes=1 << 20),
            "for n in range(9): open(str(n), 'wb').write(bytes(1 << 18))",
            "No space",
        ),
        (Limits(open_files=16), "[open('/dev/null') for n in range(20)]", "Too many open files"),
        (Limits(memory_bytes=256 << 20), "bytearray(1 << 30)", "MemoryError"),
        (
            Limits(processes=16),
            FORKS,
            "BlockingIO",
        ),
    ],
    ids=["file", "disk", "open files", "memory", "processes"],
)
@pytest.mark.timeout(60)
async def test_each_limit_holds_in_each_kind_of_sandbox(limits: Limits, code: str, said: str) -> None:
    async with Interpreter(limits) as session:
        done = await session.execute(code, 20)
        assert said in f"{done.error}", done
    async with Sandbox(limits) as box:
        result = await box.run([*python.python_command(), "-c", code], timeout_s=20)
        assert said in result.stderr.decode(), result
    async with Container(directory="work", limits=limits) as container:
        script = f"{' '.join(python.python_command())} - <<'END'\n{code}\nEND"
        result = await container.run(script, timeout_s=20)
        # Where its files or processes are used up, none are left for the words; sometimes none for the shell
        # that would end the others, and then the container ends.
        words = result.stderr.decode()
        assert said in words or words in ("", "the container has ended: it does not answer"), result
        assert result.exit_code, result


@NEEDS_ISOLATION
async def test_what_is_cancelled_while_it_waits_leaves_the_slot_to_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    asked = verifier(called_functions.wait)
    async with anyio.create_task_group() as tasks:
        for _ in range(4):  # more than compute at a time
            tasks.start_soon(partial(call, asked))
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert bytes(await call(verifier(called_functions.echo), "said")) == b'"said"'
