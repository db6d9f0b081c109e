"""A process and all its descendants, as `/proc` shows them: who they are, what they hold, and their end.

Limits that a process sets itself are its own or, where they count processes, its user's, who is the worker's
too and may be root, whom they do not bind. So where there are no control groups (`cgroups`) the
number and the memory of a tree are watched from outside. Elsewhere than on Linux a tree is its root alone.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def members(pid: int) -> list[int]:
    """A process and its descendants, those that have ended and are not waited for among them."""
    found = [pid]
    for member in found:
        found += children(member)
    return found


def children(pid: int) -> list[int]:
    """Empty if it has ended."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def excess(pid: int, processes: int, memory_bytes: int) -> str | None:
    """How a tree is larger than it may be, in words, or None.

    A process alone is bound by its own limit; the memory of several counts what they share once.
    """
    tree = members(pid)
    if too_many := crowd(len(tree), processes):
        return too_many
    # The exact number is slow to read; the sum with what is shared is never below it.
    if len(tree) > 1 and sum(map(_resident_bytes, tree)) > memory_bytes:
        held_bytes = sum(map(_proportional_bytes, tree))
        if held_bytes > memory_bytes:
            return (
                f"{held_bytes >> 20} MiB of memory in {len(tree)} processes, more than {memory_bytes >> 20}"
            )
    return None


def crowd(number: int, at_most: int) -> str | None:
    """That these are too many processes, in words, or None."""
    return f"{number} processes at a time, more than {at_most}" if number > at_most else None


def kill(pid: int) -> None:
    """Kill a process and all its descendants, whatever their session; those that have gone are no error.

    Stopped first, each before its children are looked at: a stopped process starts no further ones.
    """
    stopped: dict[int, None] = {}
    found = [pid]
    while found:
        for member in found:
            _signal(member, signal.SIGSTOP)
            stopped[member] = None
        found = [child for member in stopped for child in children(member) if child not in stopped]
    for member in reversed(stopped):
        _signal(member, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _resident_bytes(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    return 0


def _proportional_bytes(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
