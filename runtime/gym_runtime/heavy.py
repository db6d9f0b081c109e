"""Heavy verification: in processes that are killed from outside when they take too long.

Symbolic mathematics, generated code and backtracking expressions can run for ever and hold the
interpreter's lock, so no thread and no coroutine can bound them. The processes are fresh interpreters
(never forks of a worker with its threads and connections), reused from call to call, at most one per
CPU; calls beyond that wait for their turn, and neither waiting nor starting up counts against a limit.
"""

from __future__ import annotations

import faulthandler
import importlib
import math
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import anyio
from anyio import BrokenWorkerProcess, CapacityLimiter, to_process
from anyio.lowlevel import RunVar

from gym_runtime import catalogue
from gym_runtime.errors import ResourceError
from gym_runtime.replay import rejudge
from gym_runtime.verdict import Verdict

_R = TypeVar("_R")
_slots: RunVar[CapacityLimiter] = RunVar("gym_runtime_heavy_slots")


async def verify_heavy(environment: str, row: bytes, response: bytes, timeout_s: float) -> Verdict:
    """The verdict of an environment, by its name or its module's path, on a recorded rollout.

    In the process a session is opened from the row, the recorded calls are replayed if it has state, and
    the response is judged. Cancelling kills the process.

    Raises:
        ResourceError: it took longer than ``timeout_s`` seconds, the process died, or the verifier raised.
        TaskError: the row does not fit.
    """
    try:
        return await run_killable(
            _judge, environment, row, response, timeout_s=timeout_s, prepare=partial(_load, environment)
        )
    except TimeoutError as error:
        raise ResourceError(f"verification took longer than {timeout_s:g} s", stage="verify") from error


async def run_killable(
    function: Callable[..., _R],
    *args: object,
    timeout_s: float,
    prepare: Callable[[], object] | None = None,
) -> _R:
    """Call a module's function in a process; function, arguments and result must pickle.

    ``prepare`` is called there before, off the clock: the place for imports. By default the function's
    module is imported.

    Raises:
        TimeoutError: it took longer than ``timeout_s`` seconds, and its process was killed.
        ResourceError: the process died.
        Exception: whatever the function raised.
    """
    async with _limiter():
        try:
            await _in_process(prepare or partial(_import, function.__module__))
            with anyio.fail_after(timeout_s):
                return await _in_process(_contained, timeout_s, function, *args)
        except BrokenWorkerProcess as error:
            raise ResourceError(
                "the process that verified died: out of memory, or a crash in native code", stage="verify"
            ) from error


async def _in_process(function: Callable[..., _R], *args: object) -> _R:
    return await to_process.run_sync(function, *args, cancellable=True, limiter=CapacityLimiter(math.inf))


def _limiter() -> CapacityLimiter:
    """How many processes may be at work for this event loop."""
    try:
        return _slots.get()
    except LookupError:
        limiter = CapacityLimiter(os.cpu_count() or 2)
        _slots.set(limiter)
        return limiter


def _import(module: str) -> None:
    """Runs in the process."""
    importlib.import_module(module)


def _load(environment: str) -> None:
    """Runs in the process."""
    catalogue.environment(environment)


def _contained(timeout_s: float, function: Callable[..., _R], *args: object) -> _R:
    """Runs in the process: the call. If nobody is left to kill it, it ends itself some time later."""
    with _without_streams(), open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(2 * timeout_s + 5, exit=True, file=nowhere)
        try:
            return function(*args)
        finally:
            faulthandler.cancel_dump_traceback_later()


@contextmanager
def _without_streams() -> Generator[None]:
    """Point descriptors 0 and 1 elsewhere: they carry the protocol, and child processes inherit them."""
    kept = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        yield
    finally:
        for descriptor, copy in enumerate(kept):
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(nowhere)


def _judge(environment: str, row: bytes, response: bytes) -> Verdict:
    """Runs in the process."""
    return anyio.run(rejudge, catalogue.environment(environment).resource, row, response)
