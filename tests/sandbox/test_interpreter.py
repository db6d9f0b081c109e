"""An interpreter that keeps its variables."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import anyio.lowlevel
import psutil
import pytest
from gym_sandbox import Interpreter, Limits, interpreter
from gym_sandbox.sandbox_errors import TooManyInterpreters
from runtime.bounds import bounds as bounds
from sandbox.programs import DAEMON, NEEDS_ISOLATION

pytestmark = [pytest.mark.anyio, NEEDS_ISOLATION]


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
        sleep = ["sleep", f"613.{os.getpid()}"]
        await session.execute(f"import subprocess; subprocess.Popen({sleep}, env={{}})", 5)
        await session.execute(DAEMON, 5)
        first = await session.execute("import os; os.getpid()", 5)
        assert first.value is not None
    assert not session.alive
    assert sleep not in [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]


async def test_an_interpreter_reads_the_folders_that_it_was_given(tmp_path: Path) -> None:
    for folder in (*tmp_path.parents[:2], tmp_path):
        folder.chmod(0o755)
    (shown := tmp_path / "shown").mkdir()
    (hidden := tmp_path / "hidden").mkdir()
    for place in (shown, hidden):
        (place / "a").write_text("x")
    async with Interpreter(folders=(str(shown),)) as session:
        assert (await session.execute(f"open({str(shown / 'a')!r}).read()", 5)).value == "'x'"
        for code in (f"open({str(shown / 'a')!r}, 'w')", f"open({str(hidden / 'a')!r})"):
            assert "Error" in str((await session.execute(code, 5)).error)


async def test_interpreters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "ALIVE_AT_MOST", 1)
    async with Interpreter() as one, Interpreter() as other:
        await one.execute("x = 1", 5)
        with pytest.raises(TooManyInterpreters, match="1 interpreters are alive"):
            await other.execute("x = 2", 5)
        await one.close()
        assert (await other.execute("3", 5)).value == "3"


async def test_closing_an_interpreter_that_is_being_started_leaves_no_process() -> None:
    session = Interpreter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.execute, "import time; time.sleep(60)", 60)
        # By the second pass of the event loop the start is in progress.
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        assert not session.alive
        await session.close()
    assert not session.alive


async def test_cancelling_an_execution_ends_the_session() -> None:
    async with Interpreter() as session:
        with anyio.move_on_after(0.3):
            await session.execute("while True: pass", 60)
        assert not session.alive
