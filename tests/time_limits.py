"""A test that hangs fails alone, by name, and the run goes on.

The limit of a test is its ``timeout`` marker, else `WHOLE_S`; that of a test's coroutine a little less. On a
machine with more to do than processors it is longer (`busy`), because a test that waits for a processor does
not hang. A signal does not interrupt uvloop, and virtual time knows nothing of ours; so a thread, one for all
tests, looks at the real clock:

1. At the coroutine's limit the test is cancelled in its own loop.
2. At the limit of the whole, fixtures and the end of the loop included, all stacks and tasks are printed, and
   every task of the loop is cancelled once a second: one cancellation may have been lost.
3. After that the loop is stopped, which raises an error in what waits for it; a test without a loop is ended
   by a signal, which raises in the main thread while that is in the test or in its fixtures.

Behind that is an end of the whole process, which pytest-xdist starts again: faulthandler prints the stacks
also where the interpreter's lock is held, so that no thread runs.
"""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import anyio.pytest_plugin
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

COROUTINE_S = 20.0
WHOLE_S = 60.0
MARGIN_S = 2.0
BUSY_AT_MOST = 5.0
CANCEL_S = 5.0
LAST_RESORT_S = 30.0
LOOKS_EVERY_S = 0.25


def busy() -> float:
    """How much longer everything takes: the processes that want to run, for each processor that is ours."""
    ours = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(BUSY_AT_MOST, max(1.0, os.getloadavg()[0] / ours))


class Watch:
    """One test under the clock."""

    def __init__(self, limit_s: float) -> None:
        self.late = False
        self.coroutine_late = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._began_s = time.monotonic()
        self._limit_s = limit_s
        self._late_s = self._told_s = 0.0
        self._coroutine: tuple[float, asyncio.Task[Any]] | None = None

    def coroutine_begins(self, limit_s: float, task: asyncio.Task[Any]) -> None:
        """The test's coroutine is begun in this loop, and is cancelled after its limit."""
        with _lock:
            self.loop = task.get_loop()
            self._coroutine = time.monotonic() - self._began_s + limit_s, task

    def coroutine_ends(self) -> None:
        """No task of a loop that is closed is cancelled."""
        with _lock:
            self._coroutine = None

    def look(self) -> None:
        """End the test, as far as it is late."""
        now_s = time.monotonic()
        taken_s = (now_s - self._began_s) / busy()
        if self._coroutine is not None and taken_s > self._coroutine[0]:
            self.coroutine_late = True
            self._tell(self._coroutine[1].cancel)
            self._coroutine = None
        if not self.late and taken_s > self._limit_s:
            self.late, self._late_s = True, now_s
            print("\n-- a test hangs; all threads, and the tasks of its loop --", file=sys.stderr)
            faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
        if self.late and now_s - self._told_s >= 1.0:
            self._told_s = now_s
            if self.loop is not None and now_s - self._late_s < CANCEL_S:
                self._tell(self._cancel_all)
            elif self.loop is not None and self.loop.is_running():
                self._tell(self.loop.stop)
            else:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    def _tell(self, what: Callable[[], object]) -> None:
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(what)

    def _cancel_all(self) -> None:
        assert self.loop is not None
        for task in asyncio.all_tasks(self.loop):
            print(task, file=sys.stderr)
            task.cancel()


_lock = threading.Lock()
"""Held while the thread looks, so that it ends no test that is over."""


def _look_at_tests() -> None:
    while True:
        time.sleep(LOOKS_EVERY_S)
        with _lock:
            for watch in _watches.values():
                watch.look()


_watches: dict[str, Watch] = {}


def _limit_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker else WHOLE_S


_in_phase = False
"""The main thread is in a part of a test, whose errors are the test's; elsewhere they end pytest."""


def _raise_hang(number: int, frame: FrameType | None) -> None:
    if _in_phase:
        pytest.fail("hangs: took longer than its limit")


@contextmanager
def _phase() -> Generator[None]:
    global _in_phase
    _in_phase = True
    try:
        yield
    finally:
        _in_phase = False


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    with _phase():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    with _phase():
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGALRM, _raise_hang)
    threading.Thread(target=_look_at_tests, daemon=True).start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    watch = Watch(_limit_s(item))
    with _lock:
        _watches[item.nodeid] = watch
    faulthandler.dump_traceback_later(
        _limit_s(item) * BUSY_AT_MOST + LAST_RESORT_S,
        exit=True,
        file=item.config.stash[fault_handler_stderr_fd_key],
    )
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        with _lock:
            del _watches[item.nodeid]
        if watch.late and watch.loop is not None and watch.loop.is_closed():
            _forget_runner()
        # The item keeps the watch until the end of the session. A loop that is kept would keep what ends with
        # it, such as the fork servers of isolated verification.
        watch.loop = None


def forget_closed_loops() -> None:
    """For what looks at the end of the last test, whose watch still runs then."""
    for watch in _watches.values():
        if watch.loop is not None and watch.loop.is_closed():
            watch.loop = None


def _forget_runner() -> None:
    """anyio keeps a runner whose end raised, and every later test would fail for it."""
    plugin: Any = anyio.pytest_plugin
    plugin._current_runner = plugin._runner_stack = None
    plugin._runner_leases = 0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    watch = _watches[item.nodeid]
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        whole_s = _limit_s(item)
        limit_s = COROUTINE_S if whole_s == WHOLE_S else whole_s - MARGIN_S
        item.obj = _limited(item.obj, limit_s, watch)
    with _phase():
        result = yield
    if watch.late:
        pytest.fail("hangs: took longer than its limit")
    return result


def _limited(test: Callable[..., Any], limit_s: float, watch: Watch) -> Callable[..., Any]:
    @functools.wraps(test)
    async def limited(*args: Any, **kwargs: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        watch.coroutine_begins(limit_s, task)
        try:
            await test(*args, **kwargs)
        except asyncio.CancelledError:
            if not watch.coroutine_late and not watch.late:
                raise
            pytest.fail(f"took longer than {limit_s:.0f} s")
        finally:
            watch.coroutine_ends()
            # The task is also that of the next test, where the tests of a module share a loop.
            while task.cancelling():
                task.uncancel()

    return limited
