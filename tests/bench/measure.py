"""What the benchmarks share: the CPU and memory of process trees, tables."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `stubs`, which every benchmark imports after this


def tree(pids: Iterable[int]) -> list[psutil.Process]:
    """Processes and all of their descendants."""
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            found[member.pid] = member
    return list(found.values())


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """User and system seconds of live processes."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def memory_bytes(process: psutil.Process) -> int:
    """Unique set size: what would be free if this process ended."""
    return process.memory_full_info().uss


def print_table(title: str, header: list[str], rows: list[list[object]]) -> None:
    """A Markdown table, to be copied as it is."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(header) + " |")
    print("|" + "|".join(" --- " for _ in header) + "|")
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def here() -> Path:
    return Path(__file__).resolve().parent


async def drained(records: AsyncIterator[object]) -> int:
    """Read an async iterator to its end; how many there were."""
    count = 0
    async for _ in records:
        count += 1
    return count
