"""Who goes first where CPUs are scarce: calls that are waited for, before calls that overrun and spares."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

LEAST = 19


def lower(pids: Iterable[int]) -> None:
    """Let processes run only where others leave time, all on the same CPU. Repeatable, not to be undone."""
    for pid in pids:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, LEAST)
            if sys.platform == "linux":  # others are woken up on its CPU as if that were idle
                os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
                os.sched_setaffinity(pid, {max(os.sched_getaffinity(pid))})


def weigh(session: int, niceness: int) -> bool:
    """Set what a session gets where the kernel shares CPUs out by session; whether it does, and did.

    There (``sched_autogroup``) a process's own priority counts only within its session: two sessions that
    spin get half a CPU each, whatever theirs are. From 0 to `LEAST`; unlike a process's, it can be taken
    back without privilege, but is set ten times a second at most.
    """
    try:
        Path(f"/proc/{session}/autogroup").write_text(str(niceness))
    except OSError:
        return False
    return True
