"""A container that ends while a model works in it: a new one continues with its files."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
import pytest
from gym_resources.mini_swe_agent import MiniSweTask
from gym_resources.swe import local_rows
from gym_resources.swe.shell import Command, Shell
from gym_runtime import SessionLost
from gym_sandbox import bubblewrap
from gym_sandbox.processes.tree import members
from gym_sandbox.sandbox_errors import SetupError

try:
    bubblewrap.check(os.getpid())
    _refusal = ""
except SetupError as error:
    _refusal = str(error)
pytestmark = [
    *(pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(60)),
    pytest.mark.skipif(bool(_refusal), reason=_refusal),
]
TASK = msgspec.json.decode(json.dumps(next(local_rows.agent_rows(1, 7))), type=MiniSweTask)


class Kept:
    """Keeps layers in memory."""

    limit_bytes = 1 << 30

    def __init__(self) -> None:
        self.layers: list[bytes] = []

    async def put(self, part: bytes) -> str:
        self.layers.append(part)
        return str(len(self.layers) - 1)

    async def get(self, name: str) -> bytes:
        return self.layers[int(name)]


def kill_boxes() -> None:
    killed: list[int] = []
    for pid in members(os.getpid())[1:]:
        with suppress(OSError):  # it has ended meanwhile
            if Path(f"/proc/{pid}/comm").read_text() == "bwrap\n":
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
    for pid in killed:  # a signal takes its time; the files of one that has not ended yet can be saved
        with suppress(OSError):
            while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                time.sleep(0.001)


async def said(shell: Shell, script: str) -> str:
    return (await shell.execute(Command(script), 30)).text


async def test_a_command_whose_container_is_killed_runs_again_with_the_same_files() -> None:
    shell = Shell(TASK, TASK.image, Kept())
    try:
        await said(shell, "echo 1 >>log")
        await shell.save()
        with anyio.fail_after(40):
            async with anyio.create_task_group() as tasks:

                async def killed() -> None:
                    await anyio.sleep(0.5)  # the command runs by then, or is about to
                    kill_boxes()

                tasks.start_soon(killed)
                assert "1\n2" in await said(shell, "sleep 1; echo 2 >>log; cat log")
        await shell.save()
        kill_boxes()  # between two commands
        assert "1\n2\n3" in await said(shell, "echo 3 >>log; cat log")
    finally:
        await shell.close()


async def test_a_command_that_ends_its_container_is_told_so() -> None:
    shell = Shell(TASK, TASK.image, Kept())
    try:
        await said(shell, "true")
        await shell.save()
        for _ in range(2):
            assert "the container has ended" in await said(shell, "kill -KILL -1")
    finally:
        await shell.close()


async def test_one_that_is_killed_while_it_is_prepared_or_restored_is_made_again() -> None:
    shell = Shell(TASK, TASK.image, Kept())
    try:
        await shell.start()
        kill_boxes()
        await said(shell, "echo 1 >>log")
        saved = await shell.save()
        assert saved is not None
        await shell._renew()  # pyright: ignore[reportPrivateUsage] - as in a new session
        await shell.start()
        kill_boxes()
        await shell.restore(saved)
        assert "\n1\n" in await said(shell, "cat log")
    finally:
        await shell.close()


async def test_what_ran_in_a_lost_container_is_named() -> None:
    shell = Shell(TASK, TASK.image, Kept())
    try:
        await said(
            shell, "sleep 60 & sleep 61 & sleep 0.01 & python3 -c 'import time; time.sleep(60)' & sleep 1"
        )
        saved = await shell.save()
        assert saved is not None
        assert saved["running"] == ["python3", "sleep"]
        kill_boxes()
        assert "\n1\n" in await said(shell, "echo 1")
        assert shell.lost == ["python3", "sleep"]
        later = await shell.save()
        assert later is not None
        assert (later["running"], later["lost"]) == ([], shell.lost)
    finally:
        await shell.close()


async def test_without_its_files_the_session_is_lost() -> None:
    """A container that ends while they are saved."""
    shell = Shell(TASK, TASK.image, Kept())
    try:
        await said(shell, "true")
        kill_boxes()
        for _ in range(2):
            with pytest.raises(SessionLost):
                await shell.save()
        with pytest.raises(SessionLost):
            await said(shell, "true")
    finally:
        await shell.close()
