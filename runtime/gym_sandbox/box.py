"""The sandbox: runs programs, returns their output, and leaves no files or processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from gym_sandbox import bubblewrap, process, python, warm
from gym_sandbox.limits import Limits
from gym_sandbox.process import Script
from gym_sandbox.processes.child import Child, EndOfProcess
from gym_sandbox.processes.disturbances import undisturbed
from gym_sandbox.readable_files import View
from gym_sandbox.sandbox_errors import Interrupted, StartError

# For a daemon that could not be killed, as in weak mode, and keeps a pipe open.
DRAIN_LIMIT_S = 5.0
ENDED_BY_SIGTERM = 128 + signal.SIGTERM
_slots: RunVar[CapacityLimiter] = RunVar("gym_sandbox_slots")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended.

    Attributes:
        exit_code: 128 + n for signal n; None if it was killed at its time limit.
        stdout: its standard output, up to the limit.
        stderr: its standard error, up to the limit; if it was killed at a limit on all of its processes
            together, a last line says which.
        truncated: a part of either was dropped.
        duration_s: from its start to its end, in seconds.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool
    duration_s: float

    @property
    def timed_out(self) -> bool:
        return self.exit_code is None


class Sandbox:
    """Runs untrusted programs, each in a new sandbox: no files remain from one to the next.

    Leaving the ``async with`` block kills programs that still run. All sandboxes of an event loop run as many
    programs at a time as there are CPUs; waiting for a turn does not count towards a time limit.

    Args:
        limits: for each program.
        packages: distributions that its Python can import, with their dependencies, if they are installed.
        folders: folders that its programs can read, by their own paths.

    Raises:
        SetupError: (when entered) this machine cannot isolate; the message has the remedy.
    """

    def __init__(
        self, limits: Limits | None = None, *, packages: Sequence[str] = (), folders: Sequence[str] = ()
    ) -> None:
        self.limits = limits or Limits()
        self._view = View({**python.installed(tuple(packages)).shown, **{path: path for path in folders}})
        self._running: set[Child] = set()

    async def __aenter__(self) -> Sandbox:
        if not bubblewrap.weak():
            bubblewrap.check(os.getpid())
        return self

    async def __aexit__(self, *_: object) -> None:
        # A copy: a program that ends is removed meanwhile.
        for child in list(self._running):
            await child.end()

    async def run(self, program: Sequence[str] | Script, *, stdin: bytes = b"", timeout_s: float) -> Result:
        """Run a program to its end, or kill it and its descendants after ``timeout_s`` seconds.

        Processes that it leaves running (daemons) are killed at its end. It runs again if something outside
        has killed its sandbox, once if that is in doubt, and if the worker got SIGTERM meanwhile, which may
        have ended it or its children.

        Raises:
            StartError: it could not be started.
            Interrupted: its sandbox was killed each time.
        """
        result, _ = await undisturbed(
            lambda: self._run(program, stdin, timeout_s),
            lambda ended: ended[0].exit_code == ENDED_BY_SIGTERM,
            lambda ended: ended[1],
        )
        return result

    async def _run(
        self, program: Sequence[str] | Script, stdin: bytes, timeout_s: float
    ) -> tuple[Result, bool]:
        """The result, and whether something outside may have killed the sandbox."""
        async with slots(), self._started(program, with_errors=True, outlives_sigterm=False) as child:
            start_s = time.monotonic()
            output, errors = _Kept(self.limits.output_bytes), _Kept(self.limits.output_bytes)
            exit_code: int | None = None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_feed, child, stdin)
                tasks.start_soon(output.fill, child, False)
                tasks.start_soon(errors.fill, child, True)
                tasks.start_soon(child.watch)
                with anyio.move_on_after(timeout_s):
                    exit_code = await child.wait()
                # Also after its own end: processes that it has left would go on, and keep the pipes open.
                await child.end()
                # A pipe ends with its last writer, which has been killed.
                with anyio.move_on_after(DRAIN_LIMIT_S):
                    await output.complete.wait()
                    await errors.complete.wait()
                tasks.cancel_scope.cancel()
            in_doubt = exit_code is not None and child.doubtful
            if exit_code is not None and child.killed_outside:
                raise Interrupted("something outside has killed the sandbox")
            if exit_code is not None and not child.ran and child.excess is None:
                why = errors.data.decode(errors="replace").strip()
                raise StartError(f"the sandbox does not start: {why}")
            if child.excess is not None:
                errors.data += f"\nkilled: {child.excess}".encode()
                if exit_code is not None:  # the kernel may have killed another of its processes
                    exit_code = -signal.SIGKILL
            result = Result(
                # Python says -n for signal n, shells say 128 + n.
                exit_code=128 - exit_code if exit_code is not None and exit_code < 0 else exit_code,
                stdout=bytes(output.data),
                stderr=bytes(errors.data),
                truncated=output.truncated or errors.truncated,
                duration_s=time.monotonic() - start_s,
            )
            return result, in_doubt

    @asynccontextmanager
    async def start(
        self, program: Sequence[str] | Script, *, with_errors: bool = False
    ) -> AsyncGenerator[warm.Started]:
        """A program to exchange data with while it runs, killed when the block ends. It waits for no turn.

        It ignores SIGTERM, unless it says itself what to do.

        Raises:
            StartError: it could not be started.
        """
        async with self._started(program, with_errors=with_errors, outlives_sigterm=True) as child:
            yield child

    @asynccontextmanager
    async def _started(
        self, program: Sequence[str] | Script, *, with_errors: bool, outlives_sigterm: bool
    ) -> AsyncGenerator[warm.Started]:
        child = await warm.started(
            process.Program(program, self.limits, self._view, with_errors, outlives_sigterm)
        )
        self._running.add(child)
        try:
            yield child
        finally:
            self._running.discard(child)
            # Also when the caller was cancelled: nothing of it may go on.
            with anyio.CancelScope(shield=True):
                await child.close()


class _Kept:
    """The first bytes of a stream; the rest is read and dropped."""

    def __init__(self, at_most_bytes: int) -> None:
        self.data = bytearray()
        self.truncated = False
        self.complete = anyio.Event()
        self._at_most_bytes = at_most_bytes

    async def fill(self, child: Child, errors: bool) -> None:
        while piece := await child.read(errors=errors):
            room = self._at_most_bytes - len(self.data)
            # The rest is read, too: a full pipe would stop the program.
            self.data += piece[:room]
            self.truncated = self.truncated or len(piece) > room
        self.complete.set()


async def _feed(child: Child, data: bytes) -> None:
    # A program need not read its input.
    with suppress(EndOfProcess):
        await child.write(data)
    child.close_input()


def slots() -> CapacityLimiter:
    """The turns of this event loop for programs that compute."""
    return process.of_loop(_slots, lambda: CapacityLimiter(os.cpu_count() or 2))
