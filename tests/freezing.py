"""Stop a process as SIGSTOP does, and continue it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process within the block. All of its threads stand still when the block begins.

    `os.kill` returns earlier: a thread that runs on another core goes on for a while, and a broker still
    delivers what it has read.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        while not _stands_still(pid):
            time.sleep(0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    return all(_state(thread) in "TtZX" for thread in Path(f"/proc/{pid}/task").iterdir())


def _state(thread: Path) -> str:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
