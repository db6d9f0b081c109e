"""Many rollouts at once, one alone, long ones, and the first one, in a whole system on this machine.

    python tests/bench/rollouts.py                # all cases
    python tests/bench/rollouts.py --case many    # one of: many, alone, turns, first
    python tests/bench/rollouts.py --hosted

Rates, and what a rollout costs, are printed by ``gym-runtime bench system``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio
import psutil
from gym_runtime import connect
from gym_runtime.adapters import ModelSettings
from gym_runtime.client import Client
from gym_runtime.messages.outcomes import Completed
from gym_testing.bench import instant_engine, loop
from gym_testing.bench.loop import rows
from gym_testing.bench.system_bench import parts_of
from gym_testing.checks.cpu_meter import cpu_ns
from measure import memory_bytes, print_table

ENVIRONMENT = "example_single_tool_call"
ROUNDS = 5


def settings(url: str) -> ModelSettings:
    return ModelSettings(provider="openai", name="bench", urls=(url,), api="responses")


async def run(gym: Client, count: int, in_flight: int) -> tuple[int, float]:
    """Make rollouts; how many completed, and the seconds it took."""
    started, completed = time.perf_counter(), 0
    async for record in gym.rollouts(rows(count), environment=ENVIRONMENT, in_flight=in_flight):
        completed += isinstance(record.outcome, Completed)
    return completed, time.perf_counter() - started


async def many(count: int, *, hosted: bool) -> list[object]:
    """All in flight at once with a slow engine: failures, and memory per rollout in the agent worker."""
    with instant_engine.running(1.0) as (url, _):
        async with connect(
            model=settings(url), environments=[ENVIRONMENT], concurrency=count, hosted=hosted
        ) as gym:
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
    return [
        count,
        count - completed,
        most,
        f"{(peak - idle) / most / 1024:.1f}",
        f"{wall_s:.1f}",
    ]


async def alone(count: int, latency_s: float, *, hosted: bool) -> list[object]:
    """One rollout at a time: what the runtime adds to the engine's own time."""
    with instant_engine.running(latency_s) as (url, _):
        bare_wall_s, _ = await loop.run(url, count, 1)
        async with connect(
            model=settings(url), environments=[ENVIRONMENT], concurrency=1, hosted=hosted
        ) as gym:
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


async def long(turns: int, count: int, *, hosted: bool) -> list[object]:
    """Rollouts of many turns: CPU of all processes but the engine, and of the bare loop in turn."""
    with instant_engine.running(turns=turns) as (url, engine):
        async with connect(
            model=settings(url), environments=[ENVIRONMENT], concurrency=count, hosted=hosted
        ) as gym:
            pids = [pid for found in parts_of({}, engine).values() for pid in found]
            ours: list[float] = []
            bare: list[float] = []
            await run(gym, count, count)
            for _ in range(ROUNDS):
                bare.append((await loop.run(url, count, count))[1] / count * 1e3)
                before = cpu_ns(pids)
                completed, _ = await run(gym, count, count)
                assert completed == count
                ours.append((cpu_ns(pids) - before) / count / 1e6)
    ratio = statistics.median(one / other for one, other in zip(ours, bare, strict=True))
    return [turns, f"{statistics.median(ours):.1f}", f"{statistics.median(bare):.1f}", f"{ratio:.1f}"]


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
    parser.add_argument("--hosted", action="store_true")
    options = parser.parse_args()
    hosted: bool = options.hosted
    wanted = {"many", "alone", "turns", "first"} if options.case == "all" else {options.case}
    if "many" in wanted:
        print_table(
            "Many in flight (engine: 1 s)",
            [
                "rollouts",
                "failures",
                "most in flight in the agent worker",
                "KB per rollout in the agent worker",
                "seconds",
            ],
            [await many(16384, hosted=hosted)],
        )
    if "alone" in wanted:
        print_table(
            "One rollout alone",
            ["engine answers after", "rollout ms", "bare loop ms", "added ms"],
            [await alone(200, 0.0, hosted=hosted), await alone(30, 0.2, hosted=hosted)],
        )
    if "turns" in wanted:
        print_table(
            "Many turns, 64 in flight",
            ["turns", "CPU ms per rollout", "bare loop ms", "ratio"],
            [await long(50, 64, hosted=hosted)],
        )
    if "first" in wanted:
        print_table("From the command to the first row", ["median s", "fastest s", "cold s"], [first()])


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
