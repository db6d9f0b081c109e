"""The folder of a program: one path in each attempt, empty, and nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from gym_agents import _harness_folder
from gym_agents._harness_folder import harness_folder
from gym_testing.background import settled

pytestmark = pytest.mark.anyio
ROLLOUT = "run.3.1"


@pytest.fixture(autouse=True)
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def write(path: str) -> None:
    Path(path).write_text("x")


async def test_it_is_the_same_path_each_time_and_nothing_stays(temp: Path) -> None:
    paths: list[str] = []
    for _ in range(2):
        async with harness_folder(ROLLOUT) as folder:
            paths.append(folder.path)
            assert not [name for part in folder[1:] for name in os.listdir(part)]
            assert os.stat(folder.path).st_mode & 0o077 == 0
            os.mkdir(f"{folder.work}/a")
            write(f"{folder.home}/b")
    assert len(set(paths)) == 1
    assert not os.listdir(temp)


async def test_rollouts_have_different_ones() -> None:
    async with harness_folder("run.1.0") as one, harness_folder("run.1.1") as other:
        assert one.path != other.path


async def test_one_in_use_is_left_alone() -> None:
    """A worker that is frozen goes on with its files when it wakes."""
    async with harness_folder(ROLLOUT) as one:
        write(f"{one.work}/mine")
        async with harness_folder(ROLLOUT) as other:
            assert other.path == one.path + "-2"
        assert os.listdir(one.work) == ["mine"]


DIES = """
import os, subprocess, sys, anyio, tempfile
from pathlib import Path
from gym_agents._harness_folder import MARK, harness_folder

async def work():
    tempfile.tempdir = sys.argv[1]
    async with harness_folder("run.3.1") as folder:
        Path(folder.work, "old").write_text("x")
        mark = {**os.environ, MARK: folder.path}
        nowhere = subprocess.DEVNULL
        left = subprocess.Popen(["sleep", "3600"], env=mark, stdout=nowhere, stderr=nowhere)
        print(left.pid, flush=True)
        os.kill(os.getpid(), 9)

anyio.run(work)
"""


@pytest.mark.parametrize("others", [0, 1, 2])
async def test_what_a_killed_worker_left_ends_and_its_files_go(temp: Path, others: int) -> None:
    told = [sys.executable, "-c", DIES, str(temp)]
    async with AsyncExitStack() as in_use:
        for _ in range(others):
            await in_use.enter_async_context(harness_folder(ROLLOUT))
        died = await anyio.to_thread.run_sync(lambda: subprocess.run(told, capture_output=True, check=False))
    pid = int(died.stdout)
    assert _runs(pid)
    assert len(os.listdir(temp)) == 1
    async with harness_folder(ROLLOUT) as folder:
        assert not folder.path.endswith("-2")
        assert os.listdir(folder.work) == []
        await settled(lambda: not _runs(pid))
        assert os.listdir(temp) == [os.path.basename(folder.path)]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_link_in_its_place_is_not_followed(temp: Path) -> None:
    async with harness_folder(ROLLOUT) as folder:
        path = folder.path
    (temp / "elsewhere").mkdir()
    (temp / "elsewhere" / "kept").write_text("x")
    os.symlink(temp / "elsewhere", path)
    async with harness_folder(ROLLOUT) as folder:
        assert folder.path == path + "-2"
    assert os.listdir(temp / "elsewhere") == ["kept"]


async def test_it_gives_up_when_all_paths_are_taken(temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_harness_folder, "MOST_PATHS", 2)
    async with harness_folder(ROLLOUT), harness_folder(ROLLOUT):
        with pytest.raises(FileExistsError, match="in use"):
            async with harness_folder(ROLLOUT):
                pass
