"""What the benchmarks share: the CPU and memory of processes, tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `stubs`, which every benchmark imports after this


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
