"""What a change costs a rollout: two checkouts of this project, each with a system that runs, take turns.

    python tests/bench/two_checkouts.py BEFORE AFTER [--pairs 40]

Each turn is a short run of rollouts of two model calls and a tool call; CPU is that of all processes without
the engine's. Which checkout is the first of a pair changes from pair to pair. Libraries are this
installation's.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

import anyio
from gym_runtime import connect
from gym_runtime.adapters import ModelSettings
from gym_testing.bench import instant_engine
from gym_testing.bench.loop import rows
from gym_testing.bench.system_bench import parts_of
from gym_testing.checks.cpu_meter import cpu_ns

ENVIRONMENT, IN_FLIGHT = "example_single_tool_call", 256
ROOMS = ("runtime", "agents", "models", "resources", "deploy")


async def serve() -> None:
    """One checkout's system: for each line with a number, as many rollouts, and their µs on a line."""
    with instant_engine.running(0.0) as (url, engine_pid):
        model = ModelSettings(provider="openai", name="bench", urls=(url,), api="responses")
        async with connect(model=model, environments=[ENVIRONMENT], concurrency=IN_FLIGHT) as gym:
            kinds = {worker.pid: f"{worker.kind} worker" for worker in await gym.workers()}
            pids = [pid for some in parts_of(kinds, engine_pid).values() for pid in some]
            while line := await anyio.to_thread.run_sync(sys.stdin.readline):
                count, before = int(line), cpu_ns(pids)
                async for record in gym.rollouts(
                    rows(count), environment=ENVIRONMENT, in_flight=2 * IN_FLIGHT
                ):
                    assert record.reward is not None
                print((cpu_ns(pids) - before) / 1e3 / count, flush=True)


def started(checkout: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(str(Path(checkout).resolve() / room) for room in ROOMS)
    return subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def spent_us(system: subprocess.Popen[str], count: int) -> float:
    assert system.stdin is not None
    assert system.stdout is not None
    system.stdin.write(f"{count}\n")
    system.stdin.flush()
    return float(system.stdout.readline())


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % of the medians of draws with replacement."""
    chance = random.Random(1)
    drawn = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(2000))
    return drawn[50], drawn[-51]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkouts", nargs="*", metavar="BEFORE AFTER")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--rollouts", type=int, default=500)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        return anyio.run(serve, backend_options={"use_uvloop": True})
    before, after = systems = [started(checkout) for checkout in asked.checkouts]
    spent: dict[object, list[float]] = {system: [] for system in systems}
    for system in systems:
        spent_us(system, 4 * asked.rollouts)  # warm
    for number in range(asked.pairs):
        for system in systems[:: 1 if number % 2 else -1]:
            spent[system].append(spent_us(system, asked.rollouts))
    for system in systems:
        system.communicate()
    ratios = [new / old for old, new in zip(spent[before], spent[after], strict=True)]
    low, high = interval(ratios)
    for name, system in (("before", before), ("after", after)):
        print(f"{name}: {statistics.median(spent[system]):.0f} µs of CPU a rollout (median)")
    print(
        f"after / before: {statistics.median(ratios):.3f} (95 % {low:.3f} to {high:.3f}, {len(ratios)} pairs)"
    )
    return None


if __name__ == "__main__":
    main()
