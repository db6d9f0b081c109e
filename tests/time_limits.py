"""A test that hangs fails alone, by name, and the run goes on.

The limit of a test is its ``timeout`` marker, else `WHOLE_S`; that of a test's coroutine a little less. On a
machine with more to do than processors it is longer (`busy`), because a test that waits for a processor does
not hang. A signal does not interrupt uvloop, and virtual time knows nothing of ours; so a thread watches the
real clock:

1. At the coroutine's limit the test is cancelled in its own loop.
2. At the limit of the whole, fixtures and the end of the loop included, all stacks and tasks are printed, and
   every task of the loop is cancelled once a second: one cancellation may have been lost.
3. After that the loop is stopped, which raises an error in what waits for it; a test without a loop is ended
   by a signal, which raises in the main thread while that is in the test or in its fixtures.

Behind that are two ends of the whole process, which pytest-xdist starts again: pytest-timeout, and for what
holds the interpreter's lock, so that no thread runs, faulthandler, which needs no lock. Both print stacks.
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


def busy() -> float:
    """How much longer everything takes: the processes that want to run, for each processor."""
    return min(BUSY_AT_MOST, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def passed(limit_s: float, over: threading.Event) -> bool:
    """Wait for a limit, which grows while the machine is busy; False if it is over before."""
    began_s = time.monotonic()
    while (left_s := began_s + limit_s * busy() - time.monotonic()) > 0:
        if over.wait(min(left_s, limit_s)):
            return False
    return True


class Watch:
    """One test under the clock."""

    def __init__(self, limit_s: float) -> None:
        self.late = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._limit_s = limit_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The test is over."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        if not passed(self._limit_s, self._over):
            return
        self.late = True
        print("\n-- a test hangs; the stacks of all threads, and the tasks of its loop --", file=sys.stderr)
        faulthandler.dump_traceback(sys.__stderr__)
        give_up = time.monotonic() + CANCEL_S
        while self.loop is not None and time.monotonic() < give_up:
            self._tell(self.loop, self._cancel_all)
            if self._over.wait(1.0):
                return
        while not self._over.wait(1.0):
            if self.loop is not None and self.loop.is_running():
                self._tell(self.loop, self.loop.stop)
            else:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    def _tell(self, loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(what)

    def _cancel_all(self) -> None:
        assert self.loop is not None
        for task in asyncio.all_tasks(self.loop):
            print(task, file=sys.stderr)
            task.cancel()


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The limits of pytest-timeout are those of the last resort."""
    for item in items:
        limit_s = _limit_s(item)
        item.user_properties.append(("limit_s", limit_s))
        item.add_marker(pytest.mark.timeout(limit_s * BUSY_AT_MOST + LAST_RESORT_S), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    watch = _watches[item.nodeid] = Watch(_marked_s(item))
    faulthandler.dump_traceback_later(
        _marked_s(item) * BUSY_AT_MOST + 2 * LAST_RESORT_S,
        exit=True,
        file=item.config.stash[fault_handler_stderr_fd_key],
    )
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        watch.end()
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
        marked_s = _marked_s(item)
        limit_s = COROUTINE_S if marked_s == WHOLE_S else marked_s - MARGIN_S
        item.obj = _limited(item.obj, limit_s, watch)
    with _phase():
        result = yield
    if watch.late:
        pytest.fail("hangs: took longer than its limit")
    return result


def _marked_s(item: pytest.Item) -> float:
    return next(float(str(value)) for name, value in item.user_properties if name == "limit_s")


def _limited(test: Callable[..., Any], limit_s: float, watch: Watch) -> Callable[..., Any]:
    @functools.wraps(test)
    async def limited(*args: Any, **kwargs: Any) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        watch.loop = loop
        late, over = threading.Event(), threading.Event()

        def stop() -> None:
            if passed(limit_s, over):
                late.set()
                loop.call_soon_threadsafe(task.cancel)

        timer = threading.Thread(target=stop, daemon=True)
        timer.start()
        try:
            await test(*args, **kwargs)
        except asyncio.CancelledError:
            if not late.is_set() and not watch.late:
                raise
            pytest.fail(f"took longer than {limit_s:.0f} s")
        finally:
            over.set()
            # It must not cancel a task of a loop that is closed.
            timer.join()

    return limited
