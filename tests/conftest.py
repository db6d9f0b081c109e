"""What all tests share."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from gym_runtime.environment import catalogue

LIMIT_S = 20.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many schedules of faults are played where one follows from a seed (simulation, tests/faults)."""
    group = parser.getgroup("seeds")
    group.addoption("--seeds", type=int, help="how many seeds to play (default: a few)")
    group.addoption("--first-seed", type=int, default=0, help="the first of them")
    group.addoption("--soak", action="store_true", help="also what takes long: cuts, full disks, clusters")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long is left out unless it is asked for."""
    if config.getoption("--soak"):
        return
    left_out = [item for item in items if item.get_closest_marker("soak")]
    if left_out:
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that workers run on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """pytest's, readable for the unprivileged user that judges modules in it where tests run as root."""
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """What a command configures in this process does not stay for the tests after it."""
    yield
    structlog.reset_defaults()
    logging.basicConfig(force=True)


@pytest.fixture(autouse=True)
def files_unnamed() -> Iterator[None]:
    """The files that one test names are not known to the next."""
    yield
    for files in catalogue._files.values():
        files.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Fail a coroutine test that takes too long.

    A signal does not interrupt uvloop, and virtual time knows nothing of ours; so a thread watches the
    real clock and cancels the test in its own loop. pytest-timeout, which ends the whole run, stands
    behind it for what blocks the loop itself.
    """
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        marker = pyfuncitem.get_closest_marker("timeout")
        limit_s = float(marker.args[0]) - 2 if marker else LIMIT_S
        pyfuncitem.obj = _limited(pyfuncitem.obj, limit_s)


def _limited(test: Callable[..., Any], limit_s: float) -> Callable[..., Any]:
    @functools.wraps(test)
    async def limited(*args: Any, **kwargs: Any) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            loop.call_soon_threadsafe(task.cancel)

        timer = threading.Timer(limit_s, stop)
        timer.daemon = True
        timer.start()
        try:
            await test(*args, **kwargs)
        except asyncio.CancelledError:
            if not late.is_set():
                raise
            pytest.fail(f"took longer than {limit_s:.0f} s")
        finally:
            timer.cancel()

    return limited
