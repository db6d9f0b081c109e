"""Rollouts per second, CPU and memory per rollout, of a whole system on this machine.

    python tests/bench/rollouts.py                  # all cases
    python tests/bench/rollouts.py --case instant   # one of: instant, latency, many, several, alone, first,
                                                    # journal

Every figure counts all of the project's processes and the broker, but not the engine. The bare loop runs
between the runs, so that the ratio holds on a noisy machine (`gym_testing.bench.system_bench`, which is also
``gym-runtime bench system``).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import anyio
import psutil
import several
from gym_runtime import connect
from gym_runtime.client import Client
from gym_runtime.messages.outcomes import Completed
from gym_runtime.workers.adapter import ModelSettings
from gym_testing.bench import loop, system_bench
from gym_testing.bench.loop import rows
from measure import memory_bytes, print_table
from stubs import stub_engine

ENVIRONMENT = "example_single_tool_call"


def settings(url: str) -> ModelSettings:
    return ModelSettings(provider="openai", name="stub", urls=(url,), api="responses")


async def run(
    gym: Client, count: int, in_flight: int, durability: Literal["turn", "result"] = "turn"
) -> tuple[int, float]:
    """Make rollouts; how many completed, and the seconds it took."""
    started, completed = time.perf_counter(), 0
    async for record in gym.rollouts(
        rows(count), environment=ENVIRONMENT, in_flight=in_flight, durability=durability
    ):
        completed += isinstance(record.outcome, Completed)
    return completed, time.perf_counter() - started


async def throughput(
    engine_s: float, count: int, concurrency: int, workers: int, repeats: int
) -> list[object]:
    found = await system_bench.measure(
        rollouts=count, in_flight=concurrency, engine_s=engine_s, workers=workers, rounds=repeats
    )
    return [
        f"{engine_s * 1e3:.0f} ms",
        concurrency,
        count,
        f"{found.per_s:.0f}",
        f"{found.cpu_us / 1e3:.2f}",
        found.most_at_engine,
        f"{found.bare_per_s:.0f}",
        f"{found.bare_us / 1e3:.2f}",
        f"{found.ratio:.1f}",
    ]


async def journal(count: int, rounds: int) -> list[list[object]]:
    """CPU per rollout with and without the journal: short runs of both in turn, in one running system."""
    found = await system_bench.measure(rollouts=count, rounds=rounds)
    whole = system_bench.PartCost(cpu_us=found.cpu_us, without_journal_us=found.without_journal_us)
    return [
        [
            name,
            f"{part.cpu_us:.0f}",
            f"{part.without_journal_us:.0f}",
            f"{part.cpu_us - part.without_journal_us:.0f}",
            f"{(part.cpu_us - part.without_journal_us) / found.cpu_us:.1%}",
        ]
        for name, part in {"all": whole, **found.parts}.items()
    ]


async def many(count: int) -> list[object]:
    """All in flight at once with a slow engine: failures, and memory per rollout in the agent worker."""
    with stub_engine.running("--latency-s", "1") as engine:
        async with connect(model=settings(engine.url), environments=[ENVIRONMENT], concurrency=count) as gym:
            await run(gym, 64, 64)
            presence = next(worker for worker in await gym.workers() if worker.kind == "agent")
            agent = psutil.Process(presence.pid)
            idle = memory_bytes(agent)
            peak, most = idle, 0

            async def watch() -> None:
                nonlocal peak, most
                while True:
                    peak = max(peak, memory_bytes(agent))
                    present = [worker for worker in await gym.workers() if worker.kind == "agent"]
                    most = max([most, *(worker.in_use for worker in present)])
                    await anyio.sleep(0.25)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                completed, wall_s = await run(gym, count, count)
                tasks.cancel_scope.cancel()
            stats = engine.stats()
    return [
        count,
        count - completed,
        most,
        stats.max_in_flight,
        f"{(peak - idle) / most / 1024:.1f}",
        f"{wall_s:.1f}",
    ]


async def alone(count: int, latency_s: float) -> list[object]:
    """One rollout at a time: what the runtime adds to the engine's own time."""
    with stub_engine.running("--latency-s", str(latency_s)) as engine:
        bare_wall_s, _ = await loop.run(engine.url, count, 1)
        async with connect(model=settings(engine.url), environments=[ENVIRONMENT], concurrency=1) as gym:
            await run(gym, 5, 1)
            times: list[float] = []
            for _ in range(count):
                async for record in gym.rollouts(rows(1), environment=ENVIRONMENT):
                    times.append(record.duration_s)
    added = (statistics.median(times) - bare_wall_s / count) * 1e3
    return [
        f"{latency_s * 1e3:.0f} ms",
        f"{statistics.median(times) * 1e3:.1f}",
        f"{bare_wall_s / count * 1e3:.1f}",
        f"{added:.1f}",
    ]


def first() -> list[object]:
    """From the command to the first verified row, with the scripted model."""
    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(6):
            output = Path(folder) / f"{attempt}.jsonl"
            command = [
                sys.executable,
                "-m",
                "gym_runtime.cli.main",
                "run",
                ENVIRONMENT,
                "--model",
                "scripted/tool-then-message",
                "-o",
                str(output),
            ]
            started = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and not (output.exists() and output.stat().st_size):
                time.sleep(0.002)
            times.append(time.perf_counter() - started)
            assert process.wait() == 0
    return [f"{statistics.median(times[1:]):.2f}", f"{min(times):.2f}", f"{times[0]:.2f}"]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    wanted = (
        {"instant", "latency", "many", "several", "alone", "first", "journal"}
        if options.case == "all"
        else {options.case}
    )
    table: list[list[object]] = []
    if "instant" in wanted:
        table.append(await throughput(0.0, 2000, 256, options.workers, options.repeats))
    if "latency" in wanted:
        table.append(await throughput(0.2, 8192, 2048, options.workers, options.repeats))
    if table:
        print_table(
            "Throughput",
            [
                "engine answers after",
                "in flight",
                "rollouts",
                "rollouts/s",
                "CPU ms per rollout",
                "most in flight at the engine",
                "bare loop rollouts/s",
                "bare loop CPU ms",
                "ratio of CPU",
            ],
            table,
        )
    if "many" in wanted:
        print_table(
            "Many in flight (engine: 1 s)",
            [
                "rollouts",
                "failures",
                "most in flight in the agent worker",
                "most at the engine",
                "KB per rollout in the agent worker",
                "seconds",
            ],
            [await many(16384)],
        )
    if "several" in wanted:
        for load in several.LOADS:
            print_table(load.title, several.HEADER, await several.measure(load, options.repeats))
    if "alone" in wanted:
        print_table(
            "One rollout alone",
            ["engine answers after", "rollout ms", "bare loop ms", "added ms"],
            [await alone(200, 0.0), await alone(30, 0.2)],
        )
    if "journal" in wanted:
        print_table(
            "The journal, CPU µs per rollout of two turns",
            ["process", "with (durability turn)", "without (result)", "more", "share of all"],
            await journal(1000, 20),
        )
    if "first" in wanted:
        print_table("From the command to the first row", ["median s", "fastest s", "cold s"], [first()])


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
