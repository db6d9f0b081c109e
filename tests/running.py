"""Does a process still run? A zombie does not, and a process may end between two questions."""

from __future__ import annotations

import psutil


def runs(process: psutil.Process | int) -> bool:
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.is_running() and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
