"""The processor time of this process and of all that it starts, also of processes that no parent waits for.

A sandbox's processes end unseen: their parents are killed before they wait for them, so that the kernel adds
their time to nobody's. A control group counts them; where none can be made, the tree of processes is read
every `SAMPLE_S` seconds, which misses what begins and ends between two readings.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from gym_sandbox.processes import cgroups, tree
from gym_sandbox.processes.delegation import own_groups

SAMPLE_S = 0.005


class CpuMeter(NamedTuple):
    """How processor time is counted.

    Attributes:
        counted_by: ``a control group``, or ``samples``.
        others_ns: of all that this process has started, in nanoseconds since any moment.
    """

    counted_by: str
    others_ns: Callable[[], int]


@contextmanager
def cpu_meter() -> Generator[CpuMeter]:
    """A meter; what is started before is not counted by its own group."""
    if folder := _version_1():
        with _joined(folder) as group, open(group / "cpuacct.usage", "rb") as file:
            yield CpuMeter("a control group", lambda: _others_ns(file.fileno(), int))
    elif (folder := _version_2()) is not None:
        with open(folder / "cpu.stat", "rb") as file:
            yield CpuMeter("a control group", lambda: _others_ns(file.fileno(), _usage_ns))
    else:
        with _sampled() as others_ns:
            yield CpuMeter("samples", others_ns)


def cpu_ns(pids: Iterable[int]) -> int:
    """The processor time of all threads of these processes; of those that have ended, 0."""
    total = 0
    for pid in pids:
        with suppress(OSError, IndexError):
            threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
            total += sum(int(thread.read_text().split()[0]) for thread in threads)
    return total


def _version_1() -> Path | None:
    with suppress(OSError):
        groups, mounts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
        if (own := own_groups(groups, mounts).get("cpuacct")) and os.access(own[0], os.W_OK):
            return own[0]
    return None


def _version_2() -> Path | None:
    """The group below which those of sandboxes are made: it counts them and this process."""
    for folder in cgroups.place(os.getpid()).folders:
        if (folder / "cpu.stat").exists():
            return folder
    return None


def _others_ns(group: int, read: Callable[[bytes], int]) -> int:
    # First: asked for it, the kernel charges the group, too, for what this process has used since the tick.
    own_ns = time.process_time_ns()
    return read(os.pread(group, 4096, 0)) - own_ns


def _usage_ns(stat: bytes) -> int:
    return 1000 * int(stat.partition(b"usage_usec ")[2].split()[0])


@contextmanager
def _joined(parent: Path) -> Generator[Path]:
    """This process in a new group, which its children inherit; both go back in the end."""
    group = parent / f"gym-bench-{os.getpid()}"
    group.mkdir(exist_ok=True)
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield group
    finally:
        # What is still running, such as the keeper of a namespace, would keep the group.
        while members := (group / "cgroup.procs").read_text().split():
            for pid in members:
                with suppress(ProcessLookupError):
                    (parent / "cgroup.procs").write_text(pid)
        group.rmdir()


@contextmanager
def _sampled() -> Generator[Callable[[], int]]:
    seen: dict[int, int] = {}
    ended, own = threading.Event(), os.getpid()

    def look() -> int:
        for pid in tree.members(own)[1:]:
            seen[pid] = max(seen.get(pid, 0), cpu_ns([pid]))
        return sum(seen.values())

    def watch() -> None:
        while not ended.wait(SAMPLE_S):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield look
    finally:
        ended.set()
        watcher.join()
