"""Where a step's time goes: what each process does before, while and after the engine works (Linux).

For each process and phase: milliseconds on a processor, and milliseconds in which it could have run and
waited for one, because other programs had them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

EVERY_S = 0.02
KINDS = ("agent", "resource", "model", "broker")
Used = Mapping[str, tuple[float, float]]


def processes() -> dict[str, int]:
    """This process and those of its system, by kind."""
    own = psutil.Process()
    found = {"client": own.pid}
    for process in own.children(recursive=True):
        command = " ".join(process.cmdline())
        for kind in KINDS:
            if f"{kind} " in command or f"{kind}." in command:
                found.setdefault(kind, process.pid)
    return found


def used(pids: Mapping[str, int]) -> Used:
    """Milliseconds on a processor and waiting for one, since each process began."""
    return {kind: _of(pid) for kind, pid in pids.items()}


def _of(pid: int) -> tuple[float, float]:
    lines = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(line[0]) for line in lines) / 1e6, sum(int(line[1]) for line in lines) / 1e6


class Watch:
    """Looks at processes again and again, in a thread."""

    def __init__(self) -> None:
        self._pids = processes()
        self._seen: list[tuple[float, Used]] = []
        self._over = threading.Event()

    @contextmanager
    def watching(self) -> Generator[None]:
        thread = threading.Thread(target=self._look)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _look(self) -> None:
        while True:
            self._seen.append((time.time(), used(self._pids)))
            if self._over.wait(EVERY_S):
                return

    def between(self, began_s: float, ended_s: float) -> list[str]:
        """For each kind of process what it used in a stretch of time."""
        first, last = (
            min(self._seen, key=lambda seen: abs(seen[0] - at_s))[1] for at_s in (began_s, ended_s)
        )
        return [
            f"{last[kind][0] - first[kind][0]:.0f}, {last[kind][1] - first[kind][1]:.0f}" for kind in first
        ]

    @property
    def kinds(self) -> list[str]:
        return list(self._pids)
