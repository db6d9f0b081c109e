"""What it costs to save a container's files after a turn, and to bring them back.

    python tests/bench/saving.py [--rounds 3] [--image IMAGE]

A container of bubblewrap with 20,000 files, or one with the files of an image, of which some were changed
since the last time. Each is measured twice: where a process beside this worker reads the files, and where the
container packs them by itself. CPU is that of the container (its shell, and what that has started), of this
process, and of the process beside it. The best round counts.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import anyio
import psutil
from gym_sandbox import Container, Limits, saved_files, seen_files
from gym_sandbox.saved_files import SavedFiles
from gym_testing.memory.memory_store import MemoryStore
from measure import print_table

LIMITS = Limits(memory_bytes=4 << 30, disk_bytes=1 << 30, file_bytes=1 << 30, output_bytes=1 << 20)
TREE = "for d in $(seq 200); do mkdir -p t/$d; for f in $(seq 100); do echo $d $f >t/$d/$f; done; done"
LETTERS = "head -c %d /dev/urandom | base64 -w0 | split -b %d -a 5 - t/x"
CHANGES = {
    "nothing": ":",
    "1 MB of random letters in 20 files": LETTERS % (786_432, 52_429),
    "all 20,000 files, each of a few bytes": TREE,
    "30 MB of random letters in 600 files": LETTERS % (22_500_000, 50_000),
    "100 MB of random letters in 2,000 files": LETTERS % (75_000_000, 50_000),
}
"""Random letters become smaller by a quarter, as programs' texts at least do."""


SETTLED_S = 0.3
"""After so long the process beside this one has counted what its fork has used."""


def used_s() -> float:
    """The CPU of this process, and of those beside it, in seconds."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    beside = psutil.Process(seen_files.server().pid)
    return own.ru_utime + own.ru_stime + sum(of_s(one.pid) for one in (beside, *beside.children()))


def of_s(process: int) -> float:
    with open(f"/proc/{process}/stat") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")


async def inside_s(container: Container) -> float:
    """The CPU of all that the container's shell has waited for, in seconds."""
    done = await container.run(
        "cat /proc/$PPID/stat /proc/$(cut -d' ' -f4 /proc/$PPID/stat)/stat", timeout_s=30
    )
    fields = done.stdout.decode().splitlines()[-1].rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


async def measured(container: Container, work: Callable[[], Awaitable[Any]]) -> tuple[float, float, float]:
    """Seconds by the clock, and of CPU inside and here."""
    await anyio.sleep(SETTLED_S)
    first, inside = await inside_s(container), await inside_s(container)
    asked = inside - first  # what it costs to ask
    here, start = used_s(), time.monotonic()
    await work()
    wall = time.monotonic() - start
    await anyio.sleep(SETTLED_S)
    own = used_s() - here
    return wall, max(0.0, await inside_s(container) - inside - asked), own


async def once(change: str, image: str | None) -> tuple[list[float], int]:
    """What saving and restoring cost, and the bytes of the new layer."""
    store = MemoryStore(1 << 30)
    saved: list[Any] = []
    async with Container(image, directory="/tmp/work", limits=LIMITS) as container:
        files = SavedFiles(container, store)
        await files.begin()
        await container.run("mkdir t" if image else TREE, timeout_s=60)
        assert await files.save() is not None
        known = sum(map(len, store.parts.values()))
        done = await container.run(change, timeout_s=60)
        assert done.exit_code == 0, done

        async def save() -> None:
            saved.append(await files.save())

        cost = await measured(container, save)
    if saved[0] is None:
        return [*cost, *[float("nan")] * 3], 0
    async with Container(image, directory="/tmp/work", limits=LIMITS) as other:
        await other.ready()
        again = SavedFiles(other, store)
        back = await measured(other, lambda: again.begin(saved[0]))
    return [*cost, *back], sum(map(len, store.parts.values())) - known


async def nothing_seen(*_: Any) -> None:
    return None


async def main(rounds: int, image: str | None) -> None:
    rows: list[list[object]] = []
    for name, change in CHANGES.items():
        if image and change == TREE:
            continue
        for way in ("beside", "inside"):
            used = seen_files.seen if way == "beside" else nothing_seen
            with mock.patch.object(saved_files.seen_files, "seen", used):
                found = [await once(change, image) for _ in range(rounds)]
            best = [min(times) for times in zip(*(times for times, _ in found), strict=True)]
            rows.append([name, way, *(f"{1000 * one:.0f}" for one in best), f"{found[0][1] / 1e6:.2f}"])
    head = [
        *("changed", "packed", "save ms", "CPU inside", "CPU here"),
        *("restore ms", "CPU inside", "CPU here", "MB stored"),
    ]
    print_table("Saving", head, rows)
    print(f"\nLoad {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores.")


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--image")
    told = asked.parse_args()
    anyio.run(main, told.rounds, told.image)
