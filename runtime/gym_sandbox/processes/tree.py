"""A process and all its descendants, as `/proc` shows them: their number, their memory, and killing them.

Limits that a process sets itself apply to it alone. A limit on the number of processes applies to its user,
who is the worker's user too, and not to root at all. So where there are no control groups (`cgroups`), the
number and the memory of a tree are watched from outside. On other systems than Linux only the root process of
a tree is known.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def content(path: str) -> bytes:
    """A file of the kernel's, as of `/proc` or of control groups.

    Raises:
        OSError: it cannot be read, as when the process that it tells about has ended.
    """
    # Unbuffered: the event loop waits meanwhile, and `Path.read_bytes` takes twice as long.
    with open(path, "rb", buffering=0) as file:
        return file.read()


def members(pid: int) -> list[int]:
    """A process and its descendants, including zombies."""
    found = [pid]
    # The list grows while it is walked through, down to the last descendant.
    for member in found:
        found += children(member)
    return found


def children(pid: int) -> list[int]:
    """The children of a process; empty if it has ended."""
    found: list[int] = []
    # It may end while it is read; so may one of its threads.
    with suppress(OSError):
        # The kernel lists children by the thread that started them.
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found += map(int, content(f"/proc/{pid}/task/{thread}/children").split())
    return found


def cpu_s(pid: int) -> float:
    """The processor time of a process and of its children that have ended, in seconds; 0 if it has ended."""
    with suppress(OSError, ValueError):
        fields = content(f"/proc/{pid}/stat").rpartition(b")")[2].split()  # its name may have spaces
        return sum(map(int, fields[11:15])) / _TICKS_PER_S
    return 0.0


def excess(pid: int, processes: int, memory_bytes: int) -> str | None:
    """Which limit a tree exceeds, in words, or None.

    A single process has its own memory limit, so only several are measured; shared memory counts once.
    """
    tree = members(pid)
    if too_many := crowd(len(tree), processes):
        return too_many
    # The exact sum is slow to read. The resident sum counts shared memory several times, so it is never
    # below the exact one, and cheap to check first.
    if len(tree) > 1 and sum(map(_resident_bytes, tree)) > memory_bytes:
        held_bytes = sum(map(_proportional_bytes, tree))
        if held_bytes > memory_bytes:
            return (
                f"{held_bytes >> 20} MiB of memory in {len(tree)} processes, more than {memory_bytes >> 20}"
            )
    return None


def crowd(number: int, at_most: int) -> str | None:
    """A message if these are too many processes, or None."""
    return f"{number} processes at a time, more than {at_most}" if number > at_most else None


def kill(pid: int) -> None:
    """Kill a process and all its descendants, in any session; ended ones are ignored.

    Each is stopped before its children are listed, because a stopped process cannot start others.
    """
    stopped: dict[int, None] = {}
    found = [pid]
    while found:
        for member in found:
            _signal(member, signal.SIGSTOP)
            stopped[member] = None
        # Again over all: one may have forked before it was stopped.
        found = [child for member in stopped for child in children(member) if child not in stopped]
    for member in reversed(stopped):
        _signal(member, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        # A daemon that was adopted by init is no descendant any more, but may be in the group.
        os.killpg(pid, signal.SIGKILL)


def _resident_bytes(pid: int) -> int:
    with suppress(OSError):
        return int(content(f"/proc/{pid}/statm").split()[1]) * PAGE_BYTES
    return 0


def _proportional_bytes(pid: int) -> int:
    with suppress(OSError):
        for line in content(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) << 10
    return 0


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
