"""A run that is interrupted, however it is, has whole lines on disk and is completed by ``--resume``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import anyio
import psutil
import pytest
from anyio.streams.text import TextReceiveStream
from gym_runtime import Client, connect
from gym_runtime.client import RunInfo, make_pools
from gym_runtime.files.rows import expand
from gym_runtime.messages.rollout_spec import LONG_ROW_BYTES, RolloutSpec
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from running import runs
from runtime.cli.started import SCRIPT
from stubs import stub_engine
from time_limits import busy

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(90)]

ROLLOUTS = 112
ROW = b'{"responses_create_params": {"input": "%d%s"}, "initial_count": 0, "expected_count": 1, "n": %d}\n'


def command(engine: stub_engine.StubEngine, folder: Path, *more: str, chars: int = 0) -> list[str]:
    rows, said = folder / "rows.jsonl", b"a" * chars
    rows.write_bytes(b"".join(ROW % (number, said, number) for number in range(ROLLOUTS)))
    return [
        *(sys.executable, "-m", "gym_runtime.cli.main", "run", "example_session_state_mgmt"),
        *("--input", str(rows), "--output", str(folder / "out.jsonl")),
        *("--model", "openai/stub", "--model-url", engine.url, "--concurrency", "16", *more),
    ]


def keys(folder: Path) -> Counter[tuple[int, int]]:
    """What is on disk; every line but a torn last one must be whole."""
    lines = (folder / "out.jsonl").read_bytes().split(b"\n")
    rows = [json.loads(line) for line in lines[:-1]]
    return Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows)


@contextlib.contextmanager
def started(arguments: list[str], stdout: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(arguments, stdout=stdout, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


async def some_rows(folder: Path, count: int = 40) -> None:
    """Wait until there are some rows, but not all."""
    output = folder / "out.jsonl"
    while not output.exists() or output.read_bytes().count(b"\n") < count:
        await anyio.sleep(0.01)


async def gone(processes: list[psutil.Process]) -> None:
    """Wait until none of these processes is left."""
    while any(runs(one) for one in processes):
        await anyio.sleep(0.05)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.soak),
        pytest.param(signal.SIGTERM, marks=pytest.mark.soak),
        signal.SIGKILL,
    ],
)
async def test_resume_completes_an_interrupted_run_and_repeats_nothing(number: int, tmp_path: Path) -> None:
    with stub_engine.running("--latency-s", "0.15") as engine:
        with started(command(engine, tmp_path)) as process:
            await some_rows(tmp_path)
            family = psutil.Process(process.pid).children(recursive=True)
            os.kill(process.pid, number)
            status = await anyio.to_thread.run_sync(process.wait)
            assert status == (-number if number == signal.SIGKILL else 130)
            with anyio.fail_after(15 * busy()):
                await gone(family)
        before = keys(tmp_path)
        assert 40 <= len(before) < ROLLOUTS
        with started(command(engine, tmp_path, "--resume")) as process:
            assert await anyio.to_thread.run_sync(process.wait) == 0
    after = keys(tmp_path)
    assert set(before) <= set(after)
    assert len(after) == ROLLOUTS
    assert set(after.values()) == {1}


@pytest.mark.parametrize(
    ("count", "chars"), [pytest.param(0, 0, marks=pytest.mark.soak), (40, 2 * LONG_ROW_BYTES)]
)
async def test_resume_uses_what_a_dead_client_left_on_the_broker(
    count: int, chars: int, tmp_path: Path
) -> None:
    """The results of long rows that it left lack their inputs."""
    more = ("--state-dir", str(tmp_path / "state"))
    with stub_engine.running("--latency-s", "0.2") as engine:
        with started(command(engine, tmp_path, *more, chars=chars)) as process:
            if count:
                await some_rows(tmp_path, count)
            else:
                while engine.stats().requests < 24:
                    await anyio.sleep(0.01)
            family = psutil.Process(process.pid).children(recursive=True)
            os.kill(process.pid, signal.SIGKILL)
            await anyio.to_thread.run_sync(process.wait)
            with anyio.fail_after(15 * busy()):
                await gone(family)
        run = json.loads((tmp_path / "out_run.json").read_bytes())["run"]
        with started(command(engine, tmp_path, *more, "--resume", chars=chars)) as process:
            assert await anyio.to_thread.run_sync(process.wait) == 0
        asked = engine.stats().requests
    assert json.loads((tmp_path / "out_run.json").read_bytes())["run"] == run
    after = keys(tmp_path)
    assert len(after) == ROLLOUTS
    assert set(after.values()) == {1}
    for line in (tmp_path / "out.jsonl").read_bytes().splitlines():
        row = json.loads(line)
        assert row["responses_create_params"]["input"] == f"{row['n']}{'a' * chars}"
    # Two turns each; only what the engine was at work on, or the worker had not stored, is asked for again.
    assert asked <= 2 * ROLLOUTS + 32
    state = Broker(tmp_path / "state")
    async with connect(nats=state.start()) as gym:
        left = {kind: await gym.driver.bus.counts(f"{kind}.>") for kind in ("task", "rollout", "journal")}
        assert [info.state for info in await gym.runs()] == ["finished"]
    state.stop()
    assert left == {"task": {}, "rollout": {}, "journal": {}}


async def test_a_resumed_run_waits_for_its_broker_to_come_back(broker: Broker, tmp_path: Path) -> None:
    more = ("--nats", broker.url)
    with stub_engine.running("--latency-s", "0.15") as engine:
        with started(command(engine, tmp_path, *more)) as process:
            await some_rows(tmp_path)
            process.kill()
        broker.stop()
        resume = command(engine, tmp_path, *more, "--resume")
        async with await anyio.open_process(resume) as resumed:
            assert resumed.stderr is not None
            said = ""
            async for text in TextReceiveStream(resumed.stderr):
                said += text
                if "waiting up to 60 s: no broker at " in said and broker.poll() is not None:
                    broker.restart()
            assert await resumed.wait() == 0, said
    assert len(keys(tmp_path)) == ROLLOUTS


@pytest.fixture(scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    """The address of a running system."""
    pools = make_pools(
        ["example_session_state_mgmt"], ModelSettings(provider="scripted", name="message"), concurrency=8
    )
    broker = Broker(tmp_path_factory.mktemp("system") / "state")
    url = broker.start()
    try:
        async with running(SystemSpec(pools=pools, nats=(url,))):
            yield url
    finally:
        broker.stop()


@contextlib.asynccontextmanager
async def collecting(
    url: str, run: str, folder: Path
) -> AsyncGenerator[tuple[Client, list[RolloutSpec], list[str]]]:
    """A client, the tasks of an open run of ten, and the command that collects it."""
    lines = [ROW % (number, b"", number) for number in range(10)]
    tasks = list(expand(lines, run=run, environment="example_session_state_mgmt"))
    collect = [sys.executable, "-m", "gym_runtime.cli.main", "collect", run]
    collect += ["-o", str(folder / "out.jsonl"), "--nats", url]
    async with connect(nats=url) as gym:
        await gym.driver.open_run(RunInfo(run=run, total=10))
        yield gym, tasks, collect


async def test_collect_writes_at_once_and_goes_on_with_its_file(system: str, tmp_path: Path) -> None:
    async with collecting(system, "goes-on", tmp_path) as (gym, tasks, collect):
        await gym.driver.publish(tasks[:9])
        with started(collect, subprocess.PIPE) as process:
            # The last one does not come: nothing but time brings the others to the disk.
            await some_rows(tmp_path, 9)
            process.send_signal(signal.SIGTERM)
            said, _ = await anyio.to_thread.run_sync(process.communicate)
            assert process.returncode == 130
        assert b"9 completed; 1 of 10 not collected" in said
        assert b"fetched in" in said
        assert b"(of 9 of 9 tasks with a result so far)" in said
        await gym.driver.publish(tasks[9:])
        with started(collect) as process:
            assert await anyio.to_thread.run_sync(process.wait) == 0
        assert (await gym.run("goes-on")).state == "finished"
    assert sorted(keys(tmp_path).items()) == [((number, 0), 1) for number in range(10)]


async def test_a_publish_that_is_terminated_leaves_no_part_of_a_run(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"".join(ROW % (number, b"", number) for number in range(40_000)))
    broker = Broker(tmp_path / "state")
    publish = [sys.executable, "-m", "gym_runtime.cli.main", "publish", str(rows)]
    publish += ["--environment", "example_session_state_mgmt", "--nats", broker.start()]
    try:
        async with connect(nats=broker.url) as gym:
            with started(publish) as process:
                while not await gym.runs():
                    await anyio.sleep(0.01)
                process.send_signal(signal.SIGTERM)
                assert await anyio.to_thread.run_sync(process.wait) == 130
            assert [run.state for run in await gym.runs()] == ["cancelled"]
    finally:
        broker.stop()


async def test_a_publish_that_waits_for_a_pipes_writer_says_so_and_ends_at_ctrl_c(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows")
    publish = [SCRIPT, "publish", str(tmp_path / "rows"), "--nats", "nats://127.0.0.1:1"]
    async with await anyio.open_process(publish, stdout=subprocess.DEVNULL) as process:
        assert process.stderr is not None
        said = ""
        async for text in TextReceiveStream(process.stderr):
            said += text
            if said.endswith("until its writer closes it\n"):
                process.send_signal(signal.SIGINT)
        assert await process.wait() == 130, said
        assert said.count("\n") == 1


async def test_collect_says_that_the_rest_will_not_come_after_a_killed_publish(
    system: str, tmp_path: Path
) -> None:
    async with collecting(system, "killed-publish", tmp_path) as (gym, tasks, collect):
        await gym.driver.publish(tasks[:9])
        said = ""
        # It looks sooner than users need.
        soon = "from gym_runtime.cli import collect, main; collect.LOOK_S = 0.5; main.main()"
        collect[1:3] = ["-c", soon]
        async with await anyio.open_process(collect, stdout=subprocess.DEVNULL) as process:
            assert process.stderr is not None
            async for text in TextReceiveStream(process.stderr):
                said += text
                if "1 of 10 rollouts will not come: 'publish' was killed" in said:
                    await gym.cancel("killed-publish")
                    break
            assert await process.wait() == 0, said
    assert len(keys(tmp_path)) == 9


async def test_collect_says_that_a_run_is_paused(system: str, tmp_path: Path) -> None:
    async with collecting(system, "paused", tmp_path) as (gym, tasks, collect):
        await gym.pause("paused")
        await gym.driver.publish(tasks)
        async with await anyio.open_process(collect, stdout=subprocess.DEVNULL) as process:
            assert process.stderr is not None
            said = ""
            async for text in TextReceiveStream(process.stderr):
                said += text
                if "run paused is paused; 'gym-runtime resume paused' lets it go on" in said:
                    await gym.resume("paused")
                    break
            async for text in TextReceiveStream(process.stderr):  # or a full pipe would hold it up
                said += text
            assert await process.wait() == 0, said
    assert len(keys(tmp_path)) == 10


async def test_collect_of_a_finished_run_onto_a_full_disk_loses_no_row(system: str, tmp_path: Path) -> None:
    async with collecting(system, "full-disk", tmp_path) as (gym, tasks, collect):
        await gym.driver.publish(tasks)
        with anyio.fail_after(30 * busy()):
            while await gym.driver.made("full-disk") < 10:
                await anyio.sleep(0.05)
        # All rows come within a moment; a file may have 4 KiB.
        full = ["bash", "-c", 'ulimit -f 4; exec "$@"', "bash", *collect]
        ran = await anyio.run_process(full, check=False)
        assert ran.returncode == 2
        assert b"disk full at " in ran.stderr
        assert (await gym.run("full-disk")).state == "active"
        assert (await anyio.run_process(collect)).returncode == 0
        assert (await gym.run("full-disk")).state == "finished"
    assert sorted(keys(tmp_path).items()) == [((number, 0), 1) for number in range(10)]


async def test_a_second_ctrl_c_ends_at_once_and_leaves_nothing_running(tmp_path: Path) -> None:
    with (
        stub_engine.running("--latency-s", "5") as engine,
        started(command(engine, tmp_path)) as process,
    ):
        family: list[psutil.Process] = []
        while len(family) < 5:
            await anyio.sleep(0.05)
            family = psutil.Process(process.pid).children(recursive=True)
        while not engine.stats().in_flight:
            await anyio.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGINT)
        with anyio.fail_after(15 * busy()):
            assert await anyio.to_thread.run_sync(process.wait) == 130
            await gone(family)


async def test_two_runs_do_not_write_to_the_same_file(tmp_path: Path) -> None:
    with (
        # However long the second takes to start, the first goes on.
        stub_engine.running("--latency-s", "600") as engine,
        started(command(engine, tmp_path)),
    ):
        while not engine.stats().in_flight:
            await anyio.sleep(0.05)
        second = await anyio.run_process(command(engine, tmp_path, "--resume"), check=False)
    assert second.returncode == 2
    assert second.stderr.decode().count("\n") == 1
    assert "is being written by pid" in second.stderr.decode()
