"""Groups that the kernel limits."""

from __future__ import annotations

import os
from pathlib import Path

from gym_sandbox.processes import cgroups
from gym_sandbox.processes.delegation import PREFIX


def groups() -> set[Path]:
    """Those that this process has made, and not removed yet."""
    folders = cgroups.place(os.getpid()).folders
    return {path for folder in folders for path in folder.glob(f"{PREFIX}*-{os.getpid()}-*")}
