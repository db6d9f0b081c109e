"""Memory of every process over a long run: nothing grows without bound.

    python tests/bench/memory.py                      # 100,000 rollouts
    python tests/bench/memory.py --rollouts 30000
    python tests/bench/memory.py --client --rollouts 1000000

The command, its workers and its broker are sampled while ``gym-runtime run`` makes rollouts of a cheap
environment with the scripted model; with ``--client``, while a program streams rows to `Client.rollouts`,
of whose records it keeps nothing. The table shows the resident memory when the run is warm (after a third of
it), with its last rollout, and the slope of a straight line between, per 10,000 rollouts; and the most, which
for the command is when it reads the metrics back after the last rollout. What grows by design is the output
on the disk.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil
from gym_testing.bench.loop import ROW
from measure import print_table

ENVIRONMENT = "example_single_tool_call"
SAMPLE_S = 1.0
WARM = 0.3
MIB = 1024 * 1024
KINDS = ("agent", "resource", "model")
"""In the order in which the supervisor starts them."""

Samples = dict[str, list[tuple[float, float]]]
"""By the name of a process: rollouts on the disk, and its resident MiB."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--client", action="store_true", help="through the Python client")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        samples, wall_s = measured(
            Path(folder), options.rollouts, options.concurrency, through_client=options.client
        )
    print_table(
        f"Memory over {options.rollouts:,} rollouts ({options.rollouts / wall_s:.0f} a second)",
        ["process", "warm MiB", "end MiB", "most MiB", "MiB per 10,000 rollouts"],
        [described(name, points, options.rollouts) for name, points in sorted(samples.items())],
    )


PROGRAM = """
import asyncio, json, sys
import gym_runtime

row, rollouts, concurrency, output = sys.argv[1].encode(), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

async def main():
    environment, model = "ENVIRONMENT", "scripted/tool-then-message"
    rows = (row[:-1] + b', "bench_index": %d}' % index for index in range(rollouts))
    with open(output, "wb", buffering=1000) as file:
        async with gym_runtime.connect(
            model=model, environments=environment, concurrency=concurrency
        ) as client:
            async for record in client.rollouts(rows, environment=environment, in_flight=2 * concurrency):
                assert record.reward is not None, record.outcome
                file.write(b"\\n")

asyncio.run(main())
""".replace("ENVIRONMENT", ENVIRONMENT)
"""A client that streams rows in and keeps nothing of what comes back."""


def measured(folder: Path, rollouts: int, concurrency: int, *, through_client: bool) -> tuple[Samples, float]:
    """The memory of each process of one run, and the seconds that it took."""
    rows, output = folder / "rows.jsonl", folder / "out.jsonl"
    if not through_client:
        with rows.open("wb") as file:
            file.writelines(ROW[:-1] + b', "bench_index": %d}\n' % index for index in range(rollouts))
    command = [
        *(sys.executable, "-m", "gym_runtime.cli.main", "run", ENVIRONMENT, "--input", str(rows)),
        *("--output", str(output), "--model", "scripted/tool-then-message"),
        *("--concurrency", str(concurrency)),
    ]
    if through_client:
        command = [sys.executable, "-c", PROGRAM, ROW.decode(), str(rollouts), str(concurrency), str(output)]
    samples: Samples = defaultdict(list)
    counter = Lines(output)
    started_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            done = counter.count()
            for name, resident in memory(root):
                if resident:  # else it has just ended
                    samples[name].append((done, resident))
            time.sleep(SAMPLE_S)
        assert process.returncode == 0, f"the run ended with status {process.returncode}"
    assert counter.count() == rollouts, f"{rollouts - counter.count()} of {rollouts} rollouts failed"
    return samples, time.monotonic() - started_s


class Lines:
    """Counts the lines of a file that grows, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._count = 0

    def count(self) -> int:
        """The lines until now."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._position)
                while block := file.read(MIB):
                    self._count += block.count(b"\n")
                    self._position += len(block)
        return self._count


def memory(root: psutil.Process) -> list[tuple[str, float]]:
    """Each process of a run by its name, with its resident MiB."""
    found: list[tuple[str, float]] = []
    kinds = iter(KINDS)
    try:
        for process in [root, *sorted(root.children(recursive=True), key=lambda process: process.pid)]:
            if process.pid == root.pid:
                name = "command"
            elif process.ppid() == root.pid:
                name = "supervisor"
            else:
                name = "broker" if "nats-server" in process.name() else f"{next(kinds, 'another')} worker"
            found.append((name, process.memory_info().rss / MIB))
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []  # the run is ending
    return found


def described(name: str, points: list[tuple[float, float]], rollouts: int) -> list[object]:
    """A row of the table."""
    warm = [point for point in points if rollouts * WARM <= point[0] < rollouts]
    first, last = warm[0][1], warm[-1][1]
    return [
        name,
        f"{first:.1f}",
        f"{last:.1f}",
        f"{max(mib for _, mib in points):.1f}",
        f"{slope(warm) * 1e4:.2f}",
    ]


def slope(points: list[tuple[float, float]]) -> float:
    """Of the straight line that fits the points best."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


if __name__ == "__main__":
    main()
