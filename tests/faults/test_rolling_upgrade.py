"""An upgrade of a system that works: workers of two versions, three brokers restarted in turn, new keys.

The older version is a commit of this repository, so the test needs its history and runs when it is asked for:

    GYM_TEST_OLD=COMMIT pytest tests/faults/test_rolling_upgrade.py
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import pytest
from bench.counter_rows import ENVIRONMENT, counter_rows
from gym_runtime import connect
from gym_runtime.client import Client, RunInfo
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from ports import free_port, loopback_hosts
from stubs import stub_engine
from stubs.stub_engine import StubEngine
from time_limits import busy

from deploy import brokers

ROOT = Path(__file__).parents[2]
OLD = os.environ.get("GYM_TEST_OLD", "")
WHY_NOT = "set GYM_TEST_OLD=COMMIT to run workers of an older version" if not OLD else ""
pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
]

HOSTS = loopback_hosts(3)
PARTS = ("runtime", "agents", "resources", "models")
ROLLOUTS = 400
SLOTS = 8


def older_version(folder: Path) -> dict[str, str]:
    """The environment in which Python imports the older version."""
    git = shutil.which("git")
    assert git is not None
    archive = subprocess.run([git, "-C", str(ROOT), "archive", OLD, *PARTS], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder / part) for part in PARTS)}
    which = [sys.executable, "-c", "import gym_runtime, gym_agents; print(gym_runtime.__file__)"]
    found = subprocess.run(which, env=variables, capture_output=True, text=True, check=True, cwd=folder)
    assert found.stdout.startswith(str(folder)), found.stdout
    return variables


@contextmanager
def workers(
    folder: Path, engine: StubEngine, name: str, variables: dict[str, str]
) -> Generator[list[psutil.Popen]]:
    """One ``start`` of each kind, with the join file of its role."""
    commands = {
        "agent": ["agent:tool_loop", "--concurrency", str(SLOTS)],
        "resource": [f"resource:{ENVIRONMENT}"],
        "model": ["model", "--model", "openai/stub", "--model-url", engine.url],
    }
    running: list[psutil.Popen] = []
    for kind, more in commands.items():
        with (folder.parent / f"{name}-{kind}.log").open("wb") as log:
            running.append(
                psutil.Popen(
                    [sys.executable, "-m", "gym_runtime.cli.main", "start", *more],
                    env={**variables, "GYM_NATS_URL": str(folder / "join" / f"{kind}.join")},
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                )
            )
    try:
        yield running
    finally:
        for process in running:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in running:
            process.wait(60)


async def until_there(gym: Client, count: int) -> None:
    with anyio.fail_after(60 * busy()):
        while True:
            kinds = [one.kind for one in (await gym.status()).workers]
            if all(kinds.count(kind) == count for kind in ("agent", "resource", "model")):
                return
            await anyio.sleep(0.2)


async def restart_in_turn(folder: Path, nodes: list[psutil.Popen], port: int) -> None:
    """Each broker ends and comes back before the next one ends, as an upgrade of them does it."""
    for number, host in enumerate(HOSTS):
        await anyio.to_thread.run_sync(brokers.stop, nodes[number])
        nodes[number] = begun(folder, host, port)
        await anyio.to_thread.run_sync(brokers.until_ready, nodes[number])


def begun(folder: Path, host: str, port: int) -> psutil.Popen:
    more = ("--nodes", ",".join(HOSTS), "--node", host, "--linger", "0")
    return brokers.started(folder, *more, host=host, port=port)


async def command(variables: dict[str, str], *arguments: str) -> str:
    """A command's standard output."""
    done = await anyio.run_process(
        [sys.executable, "-m", "gym_runtime.cli.main", *arguments], env=variables, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


async def publish(gym: Client, run: str, count: int) -> None:
    await gym.driver.open_run(RunInfo(run=run, total=count))
    await gym.driver.publish(expand(counter_rows(count), run=run, environment=ENVIRONMENT))


async def test_everything_is_replaced_in_the_middle_of_a_run_and_each_rollout_is_made_once(
    tmp_path: Path,
) -> None:
    old = older_version(tmp_path / "old")
    folder, port = tmp_path / "broker", free_port()
    nodes = [begun(folder, host, port) for host in HOSTS]
    try:
        for node in nodes:
            await anyio.to_thread.run_sync(brokers.until_ready, node)
        with ExitStack() as stack:
            engine = stack.enter_context(stub_engine.running("--latency-s", "0.3"))
            before = stack.enter_context(workers(folder, engine, "old", old))
            async with connect(str(folder / "join" / "client.join")) as gym:
                await until_there(gym, 1)
                older = {one.worker for one in (await gym.status()).workers}
                await publish(gym, "run", ROLLOUTS)
                stack.enter_context(workers(folder, engine, "new", dict(os.environ)))
                await until_there(gym, 2)
                records: list[RolloutRecord] = []
                async with anyio.create_task_group() as tasks:

                    async def collect() -> None:
                        records.extend([record async for record in gym.collect("run")])

                    tasks.start_soon(collect)
                    await restart_in_turn(folder, nodes, port)
                    for process in before:
                        process.terminate()
                        await anyio.to_thread.run_sync(process.wait, 60)
                # A run of the new version alone, with new keys for all from the middle of it on.
                await publish(gym, "keys", ROLLOUTS // 4)
                for seed in folder.glob("*.seed"):
                    seed.unlink()
                for node in nodes:
                    node.send_signal(signal.SIGHUP)
                records += [record async for record in gym.collect("keys")]
            # The older version's client, in the system of the new one.
            rows = tmp_path / "rows.jsonl"
            rows.write_bytes(b"".join(row.replace(b"\n", b" ") + b"\n" for row in counter_rows(16)))
            client = {**old, "GYM_NATS_URL": str(folder / "join" / "client.join")}
            run = await command(client, "publish", str(rows), "--environment", ENVIRONMENT)
            await command(client, "collect", run.split()[-1], "-o", str(tmp_path / "older.jsonl"))
    finally:
        for node in nodes:
            brokers.stop(node)
    assert {type(record.outcome) for record in records} == {Completed}
    assert len({(record.run, record.task_index) for record in records}) == len(records)
    made_by_older = sum(record.worker in older for record in records)
    assert 0 < made_by_older < ROLLOUTS
    assert len(records) == ROLLOUTS + ROLLOUTS // 4
    assert len((tmp_path / "older.jsonl").read_bytes().splitlines()) == 16
