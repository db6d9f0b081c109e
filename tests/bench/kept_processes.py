"""A task of inspect_ai in a process for each rollout: ``python -m bench.kept_processes`` in ``tests``.

Rollouts of a task in `resources/guests/own` begin and wait, then all call a tool at once, with a model
that takes no time. It fails where a rollout's processes hold 100 MB or more.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import anyio
import msgspec
import psutil
from bench.measure import print_table
from gym_resources.guests.played.kept_episode import KeptEpisode
from gym_runtime import Reply, Task
from gym_runtime.environment import catalogue
from gym_testing.checks.cpu_meter import cpu_meter
from gym_testing.small_system import answer, function_call

TASK = Path(__file__).parents[1] / "resources" / "guests" / "own" / "inspect_tasks.py"
ADD = Reply(bytes(answer(function_call("add", '{"a": 1, "b": 1}', "1")).response))
MEMORY_MB = 100.0


def memory_mb() -> float:
    """What all processes hold that were started here (PSS), also those that the rollouts share."""
    held = 0
    for child in psutil.Process().children(recursive=True):
        try:
            held += child.memory_full_info().pss
        except psutil.Error:
            continue
    return held / 1e6


async def measure(rollouts: int, turns: int) -> bool:
    found = catalogue.environment(f"inspect:{TASK}@agent").definition
    assert found.generate is not None
    rows = [msgspec.json.encode(row) for row in found.generate(None, 0)]
    kind: type[KeptEpisode] = found.resource  # pyright: ignore
    begun: list[KeptEpisode[Task]] = []

    async def begin(number: int) -> None:
        one = kind.__new__(kind)
        one.row = rows[number % len(rows)]
        await one.open()
        begun.append(one)
        await one.reset()

    async def work(one: KeptEpisode[Task]) -> None:
        for _ in range(turns):
            assert not (await one.step(ADD)).terminated

    with cpu_meter() as meter:
        since_s, used = time.monotonic(), meter.others_ns()
        await begin(0)
        first_s, first_cpu = time.monotonic() - since_s, meter.others_ns() - used
        used = meter.others_ns()
        async with anyio.create_task_group() as tasks:
            for number in range(1, rollouts):
                tasks.start_soon(begin, number)
        start_cpu = (meter.others_ns() - used) / max(1, rollouts - 1)
        held_mb = await anyio.to_thread.run_sync(memory_mb)
        since_s, used = time.monotonic(), meter.others_ns()
        async with anyio.create_task_group() as tasks:
            for one in begun:
                tasks.start_soon(work, one)
        took_s, turn_cpu = time.monotonic() - since_s, (meter.others_ns() - used) / (turns * rollouts)
        for one in begun:
            await one.close()
    print_table(
        f"{rollouts} rollouts of inspect at a time",
        ["MB of each, of all together", "CPU s of a start, of the first", "turns/s", "CPU ms of a turn"],
        [
            [
                f"{held_mb / rollouts:.0f}",
                f"{start_cpu / 1e9:.2f}, {first_cpu / 1e9:.1f} ({first_s:.0f} s)",
                f"{turns * rollouts / took_s:.0f}",
                f"{turn_cpu / 1e6:.0f}",
            ]
        ],
    )
    return held_mb / rollouts < MEMORY_MB


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=32)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    sys.exit(not anyio.run(measure, given.rollouts, given.turns))
