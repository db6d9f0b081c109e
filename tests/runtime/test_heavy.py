from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
import pytest
from gym_runtime.errors import ResourceError, TaskError
from gym_runtime.heavy import run_killable, verify_heavy
from gym_runtime.verdict import make_response

pytestmark = pytest.mark.anyio

MODULE = '''"""Heavy in the ways that the row asks for."""

import os, subprocess, time

from gym_runtime import Environment, Reply, Session, Task, Verdict, tool


class HeavyTask(Task):
    how: str


class Heavy(Session[HeavyTask]):
    async def open(self) -> None:
        self.count = 0

    @tool
    def count_up(self) -> int:
        """Count."""
        self.count += 1
        return self.count

    async def verify(self, reply: Reply) -> Verdict:
        how = self.task.how
        if how == "raise":
            raise ZeroDivisionError("by nought")
        if how == "spin":
            while True:
                pass
        if how == "die":
            os._exit(3)
        if how == "chatter":
            print("chatter", flush=True)
            os.write(1, b"RETURN 5\\n")
            subprocess.run(["echo", "noise"], check=True)
            assert subprocess.run(["cat"], check=True, capture_output=True).stdout == b""
        return Verdict(float(self.count), fields={"pid": os.getpid()})


environment = Environment(resource=Heavy, description="Heavy.", heavy=True)
'''
CALL = {"type": "function_call", "call_id": "c", "name": "count_up", "arguments": "{}"}


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "heavy_module.py"
    path.write_text(MODULE)
    return str(path)


def row(how: str) -> bytes:
    return b'{"responses_create_params": {}, "how": "%s"}' % how.encode()


async def test_calls_are_replayed_and_the_verdict_comes_back_whatever_the_verifier_prints(
    module: str,
) -> None:
    verdict = await verify_heavy(module, row("chatter"), make_response(CALL, CALL, "done"), 15)
    assert verdict.reward == 2.0
    assert verdict.fields["pid"] != os.getpid()
    again = await verify_heavy(module, row("chatter"), make_response("done"), 15)
    assert (again.reward, again.fields) == (0.0, verdict.fields)


async def test_what_goes_wrong_is_a_fault_and_the_next_one_is_judged(module: str) -> None:
    silence = make_response()
    with pytest.raises(ResourceError, match="ZeroDivisionError: by nought"):
        await verify_heavy(module, row("raise"), silence, 15)
    with pytest.raises(TaskError, match="missing required field `how`"):
        await verify_heavy(module, b'{"responses_create_params": {}}', silence, 15)
    with pytest.raises(ResourceError, match="the process that verified died"):
        await verify_heavy(module, row("die"), silence, 15)
    with pytest.raises(ResourceError, match=r"verification took longer than 0.2 s"):
        await verify_heavy(module, row("spin"), silence, 0.2)
    assert (await verify_heavy(module, row(""), silence, 15)).reward == 0.0


async def test_cancelling_kills_the_process(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = f"import os, time; open({str(fifo)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    async def work() -> None:
        await run_killable(exec, code, timeout_s=60)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        pid = int(await anyio.to_thread.run_sync(fifo.read_text))
        os.kill(pid, 0)
        tasks.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_more_calls_than_processes_wait_without_spending_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    done: list[float] = []

    async def work() -> None:
        await run_killable(time.sleep, 0.3, timeout_s=1)
        done.append(time.monotonic())

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(work)
    assert len(done) == 6
    assert done[-1] - done[0] >= 0.5
