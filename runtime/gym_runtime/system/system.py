"""Start a private system: the supervisor as a child process, and the events that it reports.

The child leads a separate session, so that only the owner receives a Ctrl-C on a terminal and decides what
to do. The child's standard input is its lifeline: when the owner has ended, for any reason, the system stops.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from msgspec.structs import replace

from gym_runtime import tracing
from gym_runtime.errors import UsageError
from gym_runtime.logs import logger
from gym_runtime.system import early_supervisor
from gym_runtime.system.spec import Event, SystemSpec, decode_event, encode

Report = Callable[[Event], None]


class System:
    """A running supervisor, made by `launch`."""

    def __init__(self, process: subprocess.Popen[bytes], temporary: str = "") -> None:
        self._process = process
        self._temporary = temporary
        self._buffer = b""
        self.workers: dict[str, Event] = {}
        self.url = ""
        self.broker_pid = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    async def until(self, event: str, report: Report | None = None) -> Event:
        """Follow the supervisor's events up to one of this kind.

        Raises:
            UsageError: it gave up; the message is its reason.
        """
        async for latest in self.events():
            if report is not None:
                report(latest)
            if latest.event == event:
                return latest
        raise UsageError("the workers stopped without saying why; see their log above")

    async def events(self) -> AsyncIterator[Event]:
        """The supervisor's events, until it ends.

        Raises:
            UsageError: it gave up; the message is its reason.
        """
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                yield self._learn(decode_event(line))
                continue
            await anyio.wait_readable(descriptor)
            data = os.read(descriptor, 65536)
            if not data:
                return
            self._buffer += data

    def _learn(self, event: Event) -> Event:
        if event.event == "failed":
            raise UsageError(event.reason)
        if event.event == "broker":
            self.url, self.broker_pid = event.url, event.pid
        elif event.event == "ready":
            self.workers[event.worker] = event
        elif event.event in ("restarted", "drained"):
            self.workers.pop(event.worker, None)
            if event.kind == "broker":
                self.broker_pid = event.pid
        return event

    async def stop(self, *, drain: bool = True) -> None:
        """Stop the whole system; return when it has stopped. Without ``drain`` it stops within seconds."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it may have ended already
            if drain:
                self._process.stdin.write(b"drain\n")
                self._process.stdin.flush()
            else:
                self._process.stdin.close()
        # Only its end matters here, not a failure on the way.
        with contextlib.suppress(UsageError):
            async for _ in self.events():
                pass
        await anyio.to_thread.run_sync(self._process.wait)
        self._clean_up()

    def kill(self) -> None:
        """End everything now."""
        with contextlib.suppress(ProcessLookupError):
            # It leads a session, so the group covers what it has forked; the private broker has its own, and
            # ends with it.
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._clean_up()

    def _clean_up(self) -> None:
        if self._temporary:
            # A broker that is being killed may still write to the directory.
            for pause_s in (0.0, 0.05, 0.2, 1.0):
                time.sleep(pause_s)
                shutil.rmtree(self._temporary, ignore_errors=True)
                if not os.path.exists(self._temporary):
                    break
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def launch(system: SystemSpec) -> System:
    """Start a supervisor; returns at once. A broker without a directory gets a temporary one."""
    if told := tracing.foreign_protocol():
        logger().warning(told)
    temporary = ""
    if not system.nats and not system.state_dir:
        temporary = tempfile.mkdtemp(prefix="gym-runtime-")
        system = replace(system, state_dir=temporary, temporary=True)
    process = early_supervisor.take()
    assert process.stdin is not None
    process.stdin.write(encode(system) + b"\n")
    process.stdin.flush()
    return System(process, temporary)


@asynccontextmanager
async def running(system: SystemSpec, report: Report | None = None) -> AsyncGenerator[System]:
    """A system for as long as the context lasts, all of its workers ready.

    Raises:
        UsageError: it cannot start; the message says why.
    """
    started = launch(system)
    try:
        await started.until("all_ready" if system.pools else "broker", report)
        yield started
    finally:
        # Also after Ctrl-C: the workers give their tasks back.
        with anyio.CancelScope(shield=True):
            await started.stop()
