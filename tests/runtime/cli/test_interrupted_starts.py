"""A run that is interrupted while it starts says how to go on, and ``--resume`` then makes all of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import psutil
import pytest
from running import runs
from runtime.cli.started import SCRIPT
from stubs import stub_engine
from time_limits import busy

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(90)]

RESUME = "interrupted; run the same command with --resume to run the other rollouts"
ROWS = b'{"responses_create_params": {"input": "add 1"}, "initial_count": 0, "expected_count": 1, "n": %d}\n'
COUNT = 4
SLOW = '''"""Is not ready before there is a file named go."""
from pathlib import Path

import anyio
from gym_models.scripted import Adapter as Scripted


class Adapter(Scripted):
    async def __aenter__(self):
        Path("entered").touch()
        while not Path("go").exists():
            await anyio.sleep(0.05)
        return await super().__aenter__()
'''
SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@contextlib.contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """``gym-runtime run`` in a folder; its standard input is a pipe."""
    with subprocess.Popen(
        [SCRIPT, "run", "example_session_state_mgmt", "--output", "out.jsonl", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "GYM_NATS_URL"},
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


async def until_there(path: Path) -> None:
    while not await anyio.Path(path).exists():
        await anyio.sleep(0.01)


async def interrupted(process: subprocess.Popen[str], number: int) -> None:
    """Interrupt it; it says how to go on, and none of its processes is left."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    with anyio.fail_after(20 * busy()):
        _, said = await anyio.to_thread.run_sync(process.communicate)
        while any(runs(one) for one in family):
            await anyio.sleep(0.05)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == RESUME
    assert "cannot" not in said
    assert "Traceback" not in said


async def resumed(folder: Path, *arguments: str) -> None:
    """The same command with ``--resume`` makes every rollout, each once."""
    with started(folder, *arguments, "--resume") as process:
        _, said = await anyio.to_thread.run_sync(process.communicate)
        assert process.returncode == 0, said
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_bytes().splitlines()]
    assert sorted(row["_ng_task_index"] for row in rows) == list(range(COUNT))
    inputs = (folder / "out_materialized_inputs.jsonl").read_bytes().splitlines()
    assert len(inputs) == COUNT


def write_rows(folder: Path) -> tuple[str, ...]:
    (folder / "rows.jsonl").write_bytes(b"".join(ROWS % number for number in range(COUNT)))
    return ("--input", "rows.jsonl")


@SIGNALS
async def test_before_there_is_a_broker(number: int, tmp_path: Path) -> None:
    rows = write_rows(tmp_path)
    with started(tmp_path, "--input", "-", "--model", "scripted/tool-then-message") as process:
        await until_there(tmp_path / ".out.lock")  # from here on it waits for our rows
        await interrupted(process, number)
    await resumed(tmp_path, *rows, "--model", "scripted/tool-then-message")


@SIGNALS
async def test_before_the_workers_are_ready(number: int, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    arguments = (*write_rows(tmp_path), "--model", "slow/tool-then-message")
    with started(tmp_path, *arguments) as process:
        await until_there(tmp_path / "entered")
        await interrupted(process, number)
    (tmp_path / "go").touch()
    await resumed(tmp_path, *arguments)


@SIGNALS
async def test_before_the_first_row(number: int, tmp_path: Path) -> None:
    rows = write_rows(tmp_path)
    with stub_engine.running("--latency-s", "30") as engine:
        model = ("--model", "openai/stub", "--model-url", engine.url)
        with started(tmp_path, *rows, *model) as process:
            while not engine.stats().in_flight:
                await anyio.sleep(0.05)
            await interrupted(process, number)
    with stub_engine.running() as engine:
        model = ("--model", "openai/stub", "--model-url", engine.url)
        await resumed(tmp_path, *rows, *model)


@SIGNALS
# The first is started ahead of the command.
@pytest.mark.parametrize(
    "count", [1, 4, *(pytest.param(count, marks=pytest.mark.soak) for count in (2, 3, 5))]
)
async def test_while_its_processes_are_started(number: int, count: int, tmp_path: Path) -> None:
    arguments = (*write_rows(tmp_path), "--model", "scripted/tool-then-message")
    with started(tmp_path, *arguments) as process:
        while len(psutil.Process(process.pid).children(recursive=True)) < count:
            assert process.poll() is None
            await anyio.sleep(0.001)
        await interrupted(process, number)
    await resumed(tmp_path, *arguments)
