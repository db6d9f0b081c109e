"""One large batch: published whole, then made and collected. Rate, memory and disk, at each third of it.

    python tests/bench/batch.py                        # 100,000 tasks
    python tests/bench/batch.py --tasks 1000000
    python tests/bench/batch.py --tasks 1000000 --late # collected when all of it has been made

Every rollout is two model calls, a tool call and a verification, with the scripted model. The disk is the
broker's folder; what grows besides it is the client's output.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import anyio
import psutil
from gym_runtime.client import connect, make_pools
from gym_runtime.client.client import Client
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, running
from gym_testing.bench.loop import rows as bench_rows
from measure import print_table

ENVIRONMENT = "example_single_tool_call"
REPEATS = 8
SAMPLE_S = 2.0
PROCESSES = ("broker", "client", "agent worker", "resource worker", "model worker", "supervisor")
MIB = 1024 * 1024


class Sample(NamedTuple):
    """What was seen at one moment; ``file_bytes`` is the size of what the phase fills."""

    at_s: float
    file_bytes: int
    disk_mib: float
    memory_mib: dict[str, float]


class Phase:
    """What one part of the benchmark took, by thirds of its tasks, and how large the processes were then.

    Args:
        fills: the file or folder whose size says how far the phase has come.
    """

    def __init__(self, name: str, fills: Path) -> None:
        self.name = name
        self._fills = fills
        self._started_s = time.monotonic()
        self._samples: list[Sample] = []

    def look(self, processes: dict[str, int], folder: Path) -> None:
        """Take a sample."""
        memory: dict[str, float] = {}
        for name, pid in processes.items():
            with suppress(psutil.NoSuchProcess):
                memory[name] = psutil.Process(pid).memory_info().rss / MIB
        passed_s = time.monotonic() - self._started_s
        disk_mib = size_bytes(folder) / MIB
        self._samples.append(Sample(passed_s, size_bytes(self._fills), disk_mib, memory))

    def rows(self, tasks: int) -> list[list[object]]:
        """Rows of the table: the phase is over."""
        first, last = self._samples[0], self._samples[-1]
        found: list[list[object]] = []
        before = first._replace(at_s=0.0)
        for third in (1, 2, 3):
            reached = first.file_bytes + third * (last.file_bytes - first.file_bytes) // 3
            now = next(sample for sample in self._samples if sample.file_bytes >= reached)
            share = (now.file_bytes - before.file_bytes) / max(1, last.file_bytes - first.file_bytes)
            rate = tasks * share / max(SAMPLE_S, now.at_s - before.at_s)
            memory = [f"{now.memory_mib.get(name, 0):.0f}" for name in PROCESSES]
            disk_mib = max(sample.disk_mib for sample in self._samples if sample.at_s <= now.at_s)
            found.append([self.name, third, f"{rate:,.0f}", f"{disk_mib:,.0f}", *memory])
            before = now
        return found


def size_bytes(folder: Path) -> int:
    """What a file, or the files below a folder, take on the disk; 0 for what is not there."""
    if folder.is_file():
        return folder.stat().st_blocks * 512
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(at, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


async def command(
    phase: Phase, folder: Path, processes: dict[str, int], *arguments: str, environment: dict[str, str]
) -> str:
    """Run a command of gym-runtime to its end, and take samples meanwhile; its output."""
    log = folder.parent / f"{arguments[0]}.log"
    with log.open("wb") as file:
        started = await anyio.open_process(
            [sys.executable, "-m", "gym_runtime.cli.main", *arguments],
            env={**os.environ, **environment},
            stdout=file,
            stderr=file,
        )
    async with started, anyio.create_task_group() as tasks:

        async def look() -> None:
            while True:
                phase.look({**processes, "client": started.pid}, folder)
                await anyio.sleep(SAMPLE_S)

        tasks.start_soon(look)
        await started.wait()
        tasks.cancel_scope.cancel()
    said = log.read_text()
    assert started.returncode == 0, said
    return said


def members(broker: Broker, system: System) -> dict[str, int]:
    """The processes of a system, by their names."""
    found = {"broker": broker.pid, "supervisor": system.pid}
    for worker in system.workers.values():
        kind = f"{worker.kind} worker"
        number = sum(name.startswith(kind) for name in found)
        found[f"{kind} {number + 1}" if number else kind] = worker.pid
    return found


async def measure(tasks: int, concurrency: int, folder: Path, *, late: bool) -> list[list[object]]:
    """The rows of the table."""
    rows, store = folder / "rows.jsonl", folder / "broker"
    with rows.open("wb") as file:
        file.writelines(row + b"\n" for row in bench_rows(tasks // REPEATS))
    broker = Broker(store)
    environment = {"GYM_NATS_URL": broker.start()}
    found: list[list[object]] = []
    try:
        phase = Phase("publish", store)
        alone = {"broker": broker.pid}
        publish = ("publish", str(rows), "--environment", ENVIRONMENT, "--repeats", str(REPEATS))
        run = (await command(phase, store, alone, *publish, environment=environment)).split()[-1]
        found += phase.rows(tasks)
        pools = make_pools([ENVIRONMENT], "scripted/tool-then-message", concurrency=concurrency)
        spec = SystemSpec(pools=pools, nats=(broker.url,))
        output = folder / "out.jsonl"
        collect = ("collect", run, "--output", str(output))
        async with running(spec) as system, connect(nats=broker.url) as gym:
            everyone = members(broker, system)
            if late:
                phase = Phase("make", store)
                while not await made(gym, run, tasks):
                    phase.look(everyone, store)
                    await anyio.sleep(SAMPLE_S)
                found += phase.rows(tasks)
            phase = Phase("collect" if late else "make, collect", output)
            await command(phase, store, everyone, *collect, environment=environment)
            phase.look(everyone, store)
            found += phase.rows(tasks)
        with output.open("rb") as file:
            assert sum(1 for _ in file) == tasks
    finally:
        broker.stop()
    return found


async def made(gym: Client, run: str, tasks: int) -> bool:
    """Whether every task has a result."""
    progress = await gym.progress([await gym.run(run)])
    return progress[run].done == tasks


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=1024)
    parser.add_argument("--late", action="store_true", help="collect when all has been made")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = await measure(options.tasks, options.concurrency, Path(folder), late=options.late)
    header = ["phase", "third", "tasks/s", "broker's disk, most MiB", *(f"{name} MiB" for name in PROCESSES)]
    print_table(f"{options.tasks:,} tasks", header, rows)


if __name__ == "__main__":
    anyio.run(main)
