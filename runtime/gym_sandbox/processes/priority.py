"""CPU priority: calls in time come before those that overrun and spare processes; workers take turns."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

LEAST = 19


def take_turns() -> None:
    """When this process or one that it starts wakes, let what runs on the core finish its slice of 3 ms.

    A message wakes its receiver while the sender has more to do. If each wake interrupted a running process,
    processes would take turns five times as often, with smaller batches of messages and colder caches. Only
    Linux can be told so. Where a core is free, it changes nothing.
    """
    if sys.platform == "linux":
        # It needs no privilege, but what confines this process may forbid it.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def lower(pids: Iterable[int]) -> None:
    """Let processes run only when others leave time, all on one CPU. Repeatable; it cannot be undone."""
    for pid in pids:
        # It may have ended meanwhile.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, LEAST)
            if sys.platform == "linux":  # the scheduler wakes others on its CPU as if it were idle
                os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
                os.sched_setaffinity(pid, {max(os.sched_getaffinity(pid))})


def weigh(session: int, niceness: int) -> bool:
    """Set a session's priority if the kernel shares CPUs among sessions; return whether it was set.

    With ``sched_autogroup`` a process's own priority counts only within its session: two busy sessions get
    half a CPU each, whatever their processes' priorities are. ``niceness`` is from 0 to `LEAST`. Unlike a
    process's, it can be raised again without privilege, but the kernel accepts ten changes a second at most.
    """
    try:
        Path(f"/proc/{session}/autogroup").write_text(str(niceness))
    except OSError:
        return False
    return True
