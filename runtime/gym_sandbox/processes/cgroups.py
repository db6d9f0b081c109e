"""Control groups of Linux: limits on a process and all its descendants together, enforced by the kernel.

A group is made for a child that may run untrusted code. The child joins it before it executes the program,
and its descendants cannot leave it. Each process tries once whether it can make groups; if it cannot
(`delegation`), trees are watched from outside (`bounded`). A group's name has the id of the process that made
it; if that process was killed, the next process removes its groups.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import NamedTuple

from gym_sandbox.processes.delegation import PREFIX, own_groups, prepare
from gym_sandbox.processes.tree import content

SWEEP_LIMIT_S = 1.0
"""How long the removal of a control group waits for the end of its members."""
SWEEP_PAUSE_S = 0.005
"""Between two looks at that."""

SHELL = "/bin/sh"
_turn = count()
_trying = threading.Lock()


class Place(NamedTuple):
    """The folders below which this process makes groups, or why it cannot make any."""

    folders: tuple[Path, ...] = ()
    why_not: str = ""


class ControlGroup:
    """A group for one child. The caller removes it in the end.

    Args:
        memory_bytes: of all members together, including the files that they keep in memory.
        tasks: processes and threads at a time; with more, starting one fails.

    Raises:
        OSError: the group cannot be made.
    """

    def __init__(self, place: Iterable[Path], *, memory_bytes: int, tasks: int) -> None:
        name = f"{_prefix()}{os.getpid()}-{next(_turn)}"
        self.folders = [folder / name for folder in place]
        self._memory_bytes = memory_bytes
        limits = {
            "memory.max": memory_bytes,
            "memory.swap.max": 0,
            "memory.oom.group": 1,  # kill all members, not only the largest
            "memory.limit_in_bytes": memory_bytes,
            "memory.memsw.limit_in_bytes": memory_bytes,
            "pids.max": tasks,
        }
        try:
            for folder in self.folders:
                folder.mkdir()
                for file, limit in limits.items():
                    if (folder / file).exists():  # depends on version, controller and accounting of swap
                        (folder / file).write_text(str(limit))
        except OSError:
            self.remove()
            raise

    def joining(self, command: Sequence[str]) -> list[str]:
        """The command, started by a shell that joins the group first."""
        join = [f"echo 0 >{shlex.quote(str(folder / 'cgroup.procs'))}" for folder in self.folders]
        # `PWD` would tell the sandbox a path of the worker.
        return [SHELL, "-c", " && ".join([*join, "unset PWD", 'exec "$@"']), "sh", *command]

    def add(self, pid: int) -> None:
        """Move a process into it.

        Raises:
            OSError: it has ended.
        """
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def members(self) -> list[int]:
        """Its processes, without zombies."""
        return _members(self.folders[-1])  # the last one to be joined

    def excess(self) -> str | None:
        """A message if the kernel killed members because all together took too much memory; or None."""
        folder = self.folders[0]
        events = _numbers(f"{folder}/memory.events") or _numbers(f"{folder}/memory.oom_control")
        # ``oom`` excludes kills for the limit of a group above or of the machine; version 1 cannot tell.
        if events.get("oom_kill") and events.get("oom", 1):
            return f"more than {self._memory_bytes >> 20} MiB of memory in all processes together"
        return None

    def kill(self) -> None:
        """Kill all members, without waiting for their end."""
        for folder in self.folders:
            _kill(folder)

    def remove(self) -> bool:
        """Kill all members and remove the group; false while they have not ended yet. Repeatable."""
        left = [folder for folder in self.folders if not _remove(folder)]
        return not left


def group(*, memory_bytes: int, tasks: int) -> ControlGroup | None:
    """A new group, or None where this process cannot make one."""
    # The id as an argument: a fork misses the cache, and tries for itself.
    folders = place(os.getpid()).folders
    if folders:
        try:
            return ControlGroup(folders, memory_bytes=memory_bytes, tasks=tasks)
        except OSError as error:
            import structlog

            log = structlog.get_logger(__name__)
            log.warning("no control group was made; limits are watched from outside", reason=str(error))
    return None


def place(process: int) -> Place:
    """Where groups can be made, tried out once per process; ``process`` is its id.

    A line of the log, for debugging, says which limits hold.
    """
    # A second thread would take the group of the first one's trial for one that is left.
    with _trying:
        return _tried(process)


@cache
def _tried(_: int) -> Place:
    try:
        groups, mounts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
        folders = prepare(own_groups(groups, mounts))
        _end([left for folder in folders for left in folder.glob(f"{_prefix()}*") if _is_left(left)])
        # Tried in earnest: the files may be writable and joining still be refused.
        trial = ControlGroup(folders, memory_bytes=64 << 20, tasks=16)
        try:
            subprocess.run(trial.joining(["true"]), check=True, capture_output=True, timeout=30)
        finally:
            _end(trial.folders)
        found = Place(folders)
    except (OSError, subprocess.SubprocessError) as error:
        found = Place(why_not=str(error))
    structlog = sys.modules.get("structlog")  # heavy; where nothing has imported it, nothing has set it up
    if structlog and structlog.is_configured():  # else it prints, which a user's script must not do
        structlog.get_logger(__name__).debug(
            "limits on sandboxes and isolated verifiers",
            kept_by="watching" if found.why_not else "the kernel",
            groups=[str(folder) for folder in found.folders],
            why_not=found.why_not,
        )
    return found


def _prefix() -> str:
    """The beginning of the names of groups whose makers are in this process's pid namespace."""
    return f"{PREFIX}{os.stat('/proc/self/ns/pid').st_ino}-"


def _is_left(folder: Path) -> bool:
    """Whether the process that made it has ended.

    This process has made no group yet, so its own id in a name means an earlier process.
    """
    maker = folder.name.removeprefix(_prefix()).partition("-")[0]
    return maker == str(os.getpid()) or not Path("/proc", maker).exists()


def _end(folders: Iterable[Path]) -> None:
    """Remove groups; wait at most `SWEEP_LIMIT_S` for their members' end."""
    limit_s = time.monotonic() + SWEEP_LIMIT_S
    while folders := [folder for folder in folders if not _remove(folder)]:
        if time.monotonic() > limit_s:
            return
        time.sleep(SWEEP_PAUSE_S)


def _members(folder: Path) -> list[int]:
    """The members, without those of other pid namespaces, whose id reads as 0."""
    # The group may have been removed.
    with suppress(OSError):
        return [pid for pid in map(int, content(f"{folder}/cgroup.procs").split()) if pid]
    return []


def _kill(folder: Path) -> None:
    with suppress(OSError):
        if (folder / "cgroup.kill").exists():
            (folder / "cgroup.kill").write_text("1")
            return
        if (folder / "pids.max").exists():
            (folder / "pids.max").write_text("0")  # no member can fork while the others are killed
    for pid in _members(folder):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        _kill(folder)
        return False
    return True


def _numbers(path: str) -> dict[str, int]:
    """The numbers of a file with lines of ``NAME NUMBER``."""
    with suppress(OSError):
        lines = [line.split() for line in content(path).decode().splitlines()]
        return {name: int(number) for name, number in lines}
    return {}
