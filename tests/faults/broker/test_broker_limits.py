"""A broker with a slow or full disk, small messages, or a slow reader."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest
from faults.broker.broker_runs import ENVIRONMENT, ROLLOUTS, Command, row, server
from gym_runtime import connect
from gym_runtime.bus import nats
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from gym_testing.proxy import Proxy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(180)]


def complaints(command: Command) -> list[str]:
    """What the command says of its end, which is no traceback."""
    assert "Traceback" not in command.log
    return [line for line in command.log.splitlines() if line.startswith("gym-runtime: ")]


@pytest.mark.soak
async def test_a_run_goes_on_while_the_disk_is_slow(command: Command, tmp_path: Path) -> None:
    # Every write waits for the disk, and now and then all of them for a long time.
    config = 'listen: "127.0.0.1:-1"'
    with server(tmp_path / "server", config, disk="sync_interval: always") as (url, _, pid):
        command.start(url=url)
        await command.until(50)
        for _ in range(8):
            os.kill(pid, signal.SIGSTOP)
            await anyio.sleep(1.5)
            os.kill(pid, signal.SIGCONT)
            await anyio.sleep(0.3)
        await command.completes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True) if shutil.which("mount") else None
    if done is None or done.returncode:
        pytest.skip(f"a small file system needs mount: {done.stderr.strip() if done else 'not installed'}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.soak
async def test_a_full_disk_stops_a_run_with_one_line_and_resume_completes_it(
    tmp_path: Path, small_disk: Path
) -> None:
    # Results keep the input of rows below 16 KB, so they fill the disk.
    command = Command(tmp_path, row_bytes=15_000)
    try:
        command.start("--state-dir", str(small_disk / "broker"))
        assert await command.status() == 1, command.log
        (complaint,) = complaints(command)
        assert "then repeat the command; 'run' goes on with --resume" in complaint
        assert 0 < len(command.rows()) < ROLLOUTS
        enlarge = ["mount", "-o", "remount,size=400m", str(small_disk)]
        await anyio.run_process(enlarge)
        command.start("--state-dir", str(small_disk / "broker"), "--resume")
        await command.completes()
    finally:
        command.end()


async def test_rows_larger_than_the_broker_takes_are_no_trouble(tmp_path: Path) -> None:
    command = Command(tmp_path, rollouts=20, row_bytes=700_000)
    config = 'listen: "127.0.0.1:-1"\nmax_payload: 512KB'
    with server(tmp_path / "server", config) as (url, _, _):
        command.start(url=url)
        await command.completes()
    asked = {one["_ng_task_index"]: one for one in command.rows("out_materialized_inputs.jsonl")}
    for made in command.rows():
        wanted = asked[made["_ng_task_index"]]["responses_create_params"]
        assert made["responses_create_params"]["input"] == wanted["input"]


async def test_a_broker_that_takes_too_small_messages_is_one_line(command: Command, tmp_path: Path) -> None:
    config = 'listen: "127.0.0.1:-1"\nmax_payload: 128KB'
    with server(tmp_path / "server", config) as (url, _, _):
        command.start(url=url)
        assert await command.status() != 0
    (complaint,) = complaints(command)
    assert "takes messages up to 131072 bytes only" in complaint
    assert "put 'max_payload: 8MB' into its configuration" in complaint


async def test_a_client_that_the_broker_dropped_for_being_slow_misses_nothing(tmp_path: Path) -> None:
    model = ModelSettings(provider="scripted", name="message", options={"latency_s": 0.1})
    config = 'listen: "127.0.0.1:-1"\nmax_payload: 1MB\nmax_pending: 2MB\nwrite_deadline: "1s"'
    records: list[RolloutRecord] = []
    with server(tmp_path / "server", config) as (url, monitor, _):
        address = urlsplit(url)
        proxy = Proxy(address.hostname or "", address.port or 0)
        system = SystemSpec(pools=make_pools([ENVIRONMENT], model, concurrency=32), nats=(url,))
        async with (
            running(system),
            proxy.listening() as port,
            nats.connect(url) as flood,
            connect(f"nats://127.0.0.1:{port}") as gym,
            gym.driver.bus.serve("flood", lambda incoming: None),
        ):
            async for record in gym.rollouts(map(row, range(ROLLOUTS)), environment=ENVIRONMENT):
                records.append(record)
                if len(records) == 100:
                    proxy.freeze()
                    while not slow_consumers(monitor):
                        await flood.publish("flood", bytes(200_000))
                        await anyio.sleep(0.01)
                    proxy.thaw()
    seen = Counter((record.task_index, record.rollout_index) for record in records)
    assert len(seen) == ROLLOUTS
    assert set(seen.values()) == {1}
    assert all(record.reward == 1.0 for record in records)


def slow_consumers(monitor: str) -> int:
    with urllib.request.urlopen(f"{monitor}/varz") as answer:
        return json.load(answer)["slow_consumers"]
