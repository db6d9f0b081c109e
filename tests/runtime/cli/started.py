"""A system started by the real command, for tests."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

from time_limits import busy

SCRIPT = str(Path(sys.executable).with_name("gym-runtime"))


class Started:
    """``gym-runtime start`` until the end of the ``with``. ``url`` is its broker's."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [SCRIPT, "start", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != "GYM_NATS_URL"},
        )
        self.lines: list[str] = []
        self.url = ""
        self._errors: queue.SimpleQueue[str] = queue.SimpleQueue()
        # Whoever does not read what workers log stops them, once the pipe is full.
        self._reader = threading.Thread(target=self._read_errors)
        self._reader.start()

    def __enter__(self) -> Started:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("export GYM_NATS_URL="):
                self.url = line.strip().partition("=")[2]
                return self
        raise AssertionError(self.error_line())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.end(signal.SIGTERM)
        self._reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def output_line(self) -> str:
        """The next line on standard output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip()

    def error_line(self) -> str:
        """The next line on standard error."""
        return self._errors.get(timeout=40 * busy())

    def says(self, start: str = "", end: str = "") -> str:
        """The next event on standard error that starts and ends so; what workers log may come between."""
        while True:
            said = json.loads(self.error_line())["event"]
            if said.startswith(start) and said.endswith(end):
                return said

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.put(line.rstrip())

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def runs_for(self, seconds: float) -> bool:
        """Whether it still runs after so long."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def end(self, number: signal.Signals) -> int:
        """Signal it and wait; its exit status."""
        self._process.send_signal(number)
        try:
            return self._process.wait(40)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its workers notice that their owner is gone
            raise
