"""Makes an error of a cancellation that the runtime did not ask for, where an author's code is called.

Code that awaits a task which it has cancelled itself raises `asyncio.CancelledError`. In a task group that
would end one task in silence, and with it, as anyio has it, all the others. `contained` makes an error of it,
wherever an author's code is called. anyio's own cancellations pass: a scope that is cancelled repeats its
cancellation until it is left, so it is always known whether there is one.

Who has cancelled a task by asyncio's ``cancel`` cannot be known: the task's own code, or a caller with
``asyncio.timeout``, or Ctrl-C. So such a cancellation passes, too, but not in a task that `own` has named:
the runtime has made it for one job, so that only the job's code can have cancelled it.
"""

from __future__ import annotations

import asyncio
import math
import signal
import sysconfig
import traceback
from asyncio import CancelledError
from contextlib import suppress
from types import TracebackType
from typing import Any
from weakref import WeakSet

import anyio
import anyio.lowlevel

from gym_runtime.errors import GymError, described, leaf

LIBRARIES = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    "<",
)
"""How the paths of code begin that is not an author's: installed libraries, and code without a file."""

_own: WeakSet[asyncio.Task[Any]] = WeakSet()


def own(task: asyncio.Task[Any]) -> None:
    """Mark a task that the runtime has made for one job: its callers cancel it by a scope only."""
    _own.add(task)


def asked_for() -> bool:
    """Whether a scope that the current task is in was cancelled."""
    return anyio.current_effective_deadline() == -math.inf


async def uncancel(task: asyncio.Task[Any], before: int = 0) -> None:
    """Take back what asyncio's ``cancel`` has done to the current task.

    Args:
        before: what ``task.cancelling()`` was.
    """
    while task.cancelling() > before:
        task.uncancel()
    # Before Python 3.13 `uncancel` leaves a cancellation that has not arrived yet; then it arrives here. A
    # scope that was cancelled meanwhile repeats its own.
    with suppress(CancelledError):
        await asyncio.sleep(0)


class contained:  # noqa: N801 - a context manager, named as those of contextlib are
    """A block that calls an author's code. A cancellation that no scope asked for becomes an error.

    So does any other exception that nothing wanted (`_wanted`), such as the panic of a library in Rust: it
    would end the worker with all its other rollouts.

    Args:
        fault: the error's class: whose code it is.
        stage: where in a rollout.

    Raises:
        GymError: ``fault``, which names the place.
    """

    def __init__(self, fault: type[GymError], stage: str) -> None:
        self._fault = fault
        self._stage = stage
        self._task: asyncio.Task[Any] | None = None
        self._before = 0

    async def __aenter__(self) -> None:
        # An isolated verification may run without a loop.
        with suppress(RuntimeError):
            self._task = asyncio.current_task()
        if self._task is not None:
            self._before = self._task.cancelling()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = self._task
        cause: BaseException | None = error and leaf(error)
        raised = isinstance(cause, CancelledError)
        cancelled = task is not None and task.cancelling() > self._before
        if error is None and not cancelled:
            return  # nearly always; to look for cancelled scopes costs 5 µs, several times for each call
        if task is not None and cancelled and not asked_for():
            if task not in _own:
                return
            # This takes a step of the loop. If all tasks were cancelled, scopes are cancelled after it.
            await uncancel(task, self._before)
        if task is not None and asked_for():
            # A scope's cancellation has a message; asyncio's own has none.
            if isinstance(error, BaseExceptionGroup) or (raised and error is not None and not error.args):
                await _raise_again()
        elif raised or (cancelled and error is None):
            what = "cancelled the task that runs it" if cancelled else "raised CancelledError"
            place = raised_at(error.__traceback__ and error.__traceback__.tb_next) if error else ""
            where = f" ({place})" if place else ""
            raise self._fault(
                f"its code {what}{where}, and the runtime had cancelled nothing; "
                "catch CancelledError where you await a task that you cancel",
                stage=self._stage,
            ) from error
        if error and cause and not isinstance(cause, Exception) and not _wanted(cause):
            place = raised_at(error.__traceback__ and error.__traceback__.tb_next)
            raise self._fault(f"{described(cause)} ({place})", stage=self._stage) from error


def _wanted(error: BaseException) -> bool:
    """Whether the runtime, the interpreter or the user ends a task by this exception.

    On a loop of asyncio's, Ctrl-C cancels the main task, and only a second one raises KeyboardInterrupt: in
    asyncio's handler, not in an author's line. Where Python's own handler is set, it raises in any line.
    """
    if not isinstance(error, KeyboardInterrupt):
        return isinstance(error, (CancelledError, GeneratorExit, SystemExit))
    last = traceback.extract_tb(error.__traceback__)[-1]
    by_handler = last.filename == asyncio.runners.__file__
    return by_handler or signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def _raise_again() -> None:
    """Raise the cancellation of a scope, whatever else a task group has raised meanwhile."""
    try:
        await anyio.lowlevel.checkpoint_if_cancelled()
    except CancelledError:
        # From Python 3.13 on, asyncio's task group replaces the scope's cancellation with another, which the
        # scope would not catch. The scope repeats its cancellation.
        await anyio.lowlevel.checkpoint_if_cancelled()
        raise


def raised_at(trace: TracebackType | None) -> str:
    """``FILE:LINE`` where an error was raised, in the innermost frame that is not of an installed library."""
    place = ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not place or not name.startswith(LIBRARIES):
            place = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
