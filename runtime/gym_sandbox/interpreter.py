"""A sandboxed Python session with a memory: later code can use what earlier code has defined."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import anyio
import msgspec
from anyio import CapacityLimiter, WouldBlock
from anyio.lowlevel import RunVar

from gym_sandbox import bubblewrap, process, python, warm
from gym_sandbox.limits import Limits
from gym_sandbox.process import Script
from gym_sandbox.processes.child import EndOfProcess
from gym_sandbox.readable_files import View
from gym_sandbox.sandbox_errors import UNREADABLE, TooManyInterpreters

ALIVE_AT_MOST = 256
GRACE_S = 1.0
_alive: RunVar[CapacityLimiter] = RunVar("gym_interpreters")


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """The result of running a piece of code.

    Attributes:
        stdout: its standard output, up to the limit, and a note of how much was dropped.
        stderr: its standard error, likewise.
        error: the traceback if it raised, or what killed the session; else None.
        value: the `repr` of the last statement's value, if it is an expression whose value is not None.
        killed: the session has ended and its memory is lost; the next execution starts a new one.
    """

    stdout: str = ""
    stderr: str = ""
    error: str | None = None
    value: str | None = None
    killed: bool = False


_decode = msgspec.json.Decoder(Execution).decode


class Interpreter:
    """One Python process in the sandbox, started when first needed, kept until `close`.

    Code that raises does not end it. Code that exceeds its time limit is interrupted by a `TimeoutError`; if
    it ignores that, the session is killed with all its processes. Executions must not overlap.

    Args:
        limits: of the process; of its output, per execution.
        packages: distributions that can be imported, if they are installed.
        aliases: names of modules that code can use without an import, such as ``{"np": "numpy"}``.
        folders: folders that its code can read, by their own paths.

    Raises:
        SetupError: (at the first execution) this machine cannot isolate; the message has the remedy.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        packages: Sequence[str] = (),
        aliases: Mapping[str, str] | None = None,
        folders: Sequence[str] = (),
    ) -> None:
        self.limits = limits or Limits()
        self._view = View({**python.installed(tuple(packages)).shown, **{path: path for path in folders}})
        self._aliases = json.dumps(dict(aliases or {}))
        self._child: warm.Started | None = None
        self._starting = anyio.Lock()

    async def __aenter__(self) -> Interpreter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def alive(self) -> bool:
        """Whether there is a process, and so a memory."""
        return self._child is not None

    async def execute(self, code: str, timeout_s: float) -> Execution:
        """Run code. Cancelling kills the session.

        Raises:
            TooManyInterpreters: `ALIVE_AT_MOST` interpreters are alive in this worker.
            StartError: the sandbox could not be started.
            Interrupted: something outside has killed the session, whose memory is lost.
        """
        async with self._starting:
            child = self._child or await self._start()
        request = {"code": code, "limit_s": timeout_s, "keep_bytes": self.limits.output_bytes}
        try:
            # The session itself interrupts the code first; this is for code that ignores that.
            with anyio.fail_after(timeout_s + GRACE_S):
                await child.send(json.dumps(request).encode())
                # A byte may take six when it is escaped in JSON.
                answer = await child.receive(16 * self.limits.output_bytes + (1 << 20))
            return _decode(answer)
        except TimeoutError:
            await self.close()
            why = f"TimeoutError: the code took longer than {timeout_s:g} s and did not stop; "
        except (EndOfProcess, *UNREADABLE):
            await self.close()
            why = f"the interpreter ended ({child.excess or f'exit code {child.exit_code}'}); "
        # After a cancellation its answer would be taken for that of the next code.
        except BaseException:
            await self.close()
            raise
        return Execution(error=f"{why}all variables are lost", killed=True)

    async def close(self) -> None:
        """Kill the process with all its descendants. Repeatable; a later execution starts a new process."""
        with anyio.CancelScope(shield=True):
            # A process that is being started would be left.
            async with self._starting:
                child, self._child = self._child, None
            if child is not None:
                await child.close()
                _living().release_on_behalf_of(self)

    async def _start(self) -> warm.Started:
        if not bubblewrap.weak():
            bubblewrap.check(os.getpid())
        try:
            # Not awaited: a session holds its place while a model thinks, so waiting could take for ever.
            _living().acquire_on_behalf_of_nowait(self)
        except WouldBlock as error:
            raise TooManyInterpreters(f"{ALIVE_AT_MOST} interpreters are alive in this worker") from error
        try:
            program = process.Program(Script(_script(), (self._aliases,)), self.limits, self._view)
            self._child = await warm.started(program)
        # Its place would be taken for ever.
        except BaseException:
            _living().release_on_behalf_of(self)
            raise
        return self._child


@cache
def _script() -> str:
    return Path(__file__).with_name("repl.py").read_text("utf-8")


def _living() -> CapacityLimiter:
    return process.of_loop(_alive, lambda: CapacityLimiter(ALIVE_AT_MOST))
