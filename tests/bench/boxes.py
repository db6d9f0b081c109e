"""What boxes on this machine cost: from a template, reset, 64 forks of one with 100 MB.

    python tests/bench/boxes.py [--boxes 200] [--rounds 3]

CPU is that of this process and, by a control group, of all that it starts. The best round counts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from gym_boxes.overlays import EMPTY, Overlays
from gym_testing.checks.cpu_meter import CpuMeter, cpu_meter
from measure import print_table

FORKS = 64
LARGE = "i=0; while [ $i -lt 100 ]; do head -c 1000000 /dev/urandom >f$i; i=$((i + 1)); done"


async def ready(boxes: Overlays, template: str, label: str) -> str:
    """A box that takes commands."""
    box = await boxes.create(template, label=label, life_s=600)
    await boxes.ready(box)
    return box


async def cycle(boxes: Overlays, template: str, number: int) -> None:
    """Boxes from a template, ended when they take commands; four at a time."""

    async def some(place: int) -> None:
        for turn in range(number // 4):
            await boxes.end(await ready(boxes, template, f"a.{place}.{turn}"))

    async with anyio.create_task_group() as tasks:
        for place in range(4):
            tasks.start_soon(some, place)


async def measured(work: Callable[[], Awaitable[None]], rounds: int, meter: CpuMeter) -> tuple[float, float]:
    """The seconds that the work takes, by the clock and of CPU."""
    found: list[tuple[float, float]] = []
    for _ in range(rounds):
        start_s, cpu_s = time.monotonic(), used_s(meter)
        await work()
        found.append((time.monotonic() - start_s, used_s(meter) - cpu_s))
    return min(one for one, _ in found), min(one for _, one in found)


def used_s(meter: CpuMeter) -> float:
    return time.process_time() + meter.others_ns() / 1e9


async def main(number: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, cpu_meter() as meter:
        os.chmod(folder, 0o711)
        boxes = Overlays(Path(folder))
        parent = await boxes.create(EMPTY, label="a.0.1", life_s=600)
        await boxes.exec(parent, LARGE, timeout_s=300)
        template = await boxes.snapshot(parent)
        rows: list[list[object]] = []

        async def many() -> None:
            await cycle(boxes, template, number)

        wall_s, cpu_s = await measured(many, rounds, meter)
        rows.append(["box from a template of 100 MB, until it takes commands, and its end", number])
        rows[-1] += [
            f"{1000 * wall_s / number:.1f}",
            f"{1000 * cpu_s / number:.1f}",
            f"{number / wall_s:.0f}",
        ]

        async def reset() -> None:
            box = await ready(boxes, template, "a.1.1")
            for _ in range(50):
                await boxes.reset(box)
            await boxes.end(box)

        wall_s, cpu_s = await measured(reset, rounds, meter)
        rows.append(["reset to the template", 50, f"{20 * wall_s:.1f}", f"{20 * cpu_s:.1f}", ""])

        made: list[str] = []

        async def forks() -> None:
            kept = await boxes.snapshot(parent)
            async with anyio.create_task_group() as tasks:

                async def fork(place: int) -> None:
                    made.append(await ready(boxes, kept, f"a.{place}.2"))

                for place in range(FORKS):
                    tasks.start_soon(fork, place)

        before_s = used_s(meter)
        wall_s, _ = await measured(forks, 1, meter)
        for box in made[1:]:  # what has run in them counts when it has ended
            await boxes.end(box)
        cpu_s = used_s(meter) - before_s
        rows.append([f"{FORKS} forks of a box with 100 MB, until all take commands", 1])
        rows[-1] += [f"{1000 * wall_s:.0f}", f"{1000 * cpu_s:.0f}", ""]
        size = sum(path.lstat().st_blocks * 512 for path in (Path(folder) / "boxes" / made[0]).rglob("*"))
        done = await boxes.exec(made[0], "ls | wc -l", timeout_s=60)
        assert done.stdout.split() == [b"100"], done
        for one in await boxes.list("a."):
            await boxes.end(one.box)
        print_table("Boxes", ["", "n", "ms", "CPU ms", "per s"], rows)
        load = f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
        print(f"\nA fork takes {size} bytes of disk; CPU by {meter.counted_by}; load {load}.")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--boxes", type=int, default=200)
    asked.add_argument("--rounds", type=int, default=3)
    given = asked.parse_args()
    anyio.run(main, given.boxes, given.rounds)
