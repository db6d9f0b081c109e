"""What a change costs a rollout: two checkouts of this project, each with a system that runs, take turns.

    python tests/bench/two_checkouts.py BEFORE AFTER [--starts 8] [--pairs 12]

Each turn is a short run of rollouts of two model calls and a tool call; CPU is that of all processes without
the engine's. Both systems are started again several times, because two starts of one checkout differ by some
percent; which of them is the first changes. Libraries are this installation's.
"""

from __future__ import annotations

import argparse
import json
import os
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
SAID = "spent"
ROOMS = ("runtime", "agents", "models", "resources", "deploy")


async def serve() -> None:
    """One checkout's system: for each line with a number, as many rollouts, and their µs by part."""
    with instant_engine.running(0.0) as (url, engine_pid):
        model = ModelSettings(provider="openai", name="bench", urls=(url,), api="responses")
        async with connect(model=model, environments=[ENVIRONMENT], concurrency=IN_FLIGHT) as gym:
            kinds = {worker.pid: f"{worker.kind} worker" for worker in await gym.workers()}
            parts = parts_of(kinds, engine_pid)
            while line := await anyio.to_thread.run_sync(sys.stdin.readline):
                count, before = int(line), {name: cpu_ns(pids) for name, pids in parts.items()}
                async for record in gym.rollouts(
                    rows(count), environment=ENVIRONMENT, in_flight=2 * IN_FLIGHT
                ):
                    assert record.reward is not None
                spent = {name: (cpu_ns(parts[name]) - used) / 1e3 / count for name, used in before.items()}
                print(SAID, json.dumps(spent), flush=True)


def started(checkout: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(str(Path(checkout).resolve() / room) for room in ROOMS)
    return subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def spent_us(system: subprocess.Popen[str], count: int) -> dict[str, float]:
    assert system.stdin is not None
    assert system.stdout is not None
    system.stdin.write(f"{count}\n")
    system.stdin.flush()
    # The log goes to the same place.
    said = next(line for line in system.stdout if line.startswith(SAID))
    spent: dict[str, float] = json.loads(said.removeprefix(SAID))
    return spent | {"all": sum(spent.values())}


def both(checkouts: list[str], pairs: int, rollouts: int) -> dict[str, list[dict[str, float]]]:
    """What a rollout costs in each turn of two systems that are started for it."""
    systems = {checkout: started(checkout) for checkout in checkouts}
    spent: dict[str, list[dict[str, float]]] = {checkout: [] for checkout in checkouts}
    for system in systems.values():
        spent_us(system, 4 * rollouts)  # warm
    for number in range(pairs):
        for checkout in checkouts[:: 1 if number % 2 else -1]:
            spent[checkout].append(spent_us(systems[checkout], rollouts))
    for system in systems.values():
        system.communicate()
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkouts", nargs="*", metavar="BEFORE AFTER")
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--rollouts", type=int, default=500)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        return anyio.run(serve, backend_options={"use_uvloop": True})
    before, after = asked.checkouts
    ratios: dict[str, list[float]] = {}
    for start in range(asked.starts):
        found = both(asked.checkouts[:: 1 if start % 2 else -1], asked.pairs, asked.rollouts)
        costs = {
            name: [statistics.median(one[name] for one in found[checkout]) for checkout in (before, after)]
            for name in found[before][0]
        }
        for name, (old, new) in costs.items():
            if old:  # the supervisor may have had nothing to do
                ratios.setdefault(name, []).append(new / old)
        print(
            ", ".join(f"{name} {old:.0f} and {new:.0f} µs" for name, (old, new) in costs.items()), flush=True
        )
    for name, found in ratios.items():
        error = statistics.stdev(found) / len(found) ** 0.5 if len(found) > 1 else 0.0
        print(f"{name}, after / before: {statistics.fmean(found):.3f} ± {error:.3f} (standard error)")
    return None


if __name__ == "__main__":
    main()
