"""No process outlives the tests: one that is left fails the session, and the test that started it is named.

A process is known by a variable that it inherits or, if it has been given no variables, by its parent. Each
process of pytest-xdist looks after its own.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest
import time_limits
from gym_sandbox import namespaces, seen_files
from gym_sandbox.processes import tree

MARK = "GYM_RUNTIME_TESTS"
STARTED_BY = re.compile(r"^PYTEST_CURRENT_TEST=(\S+)", re.MULTILINE)
GONE_S = 20.0
"""A fork server that was still importing, at the lowest priority, learns late of its end."""

END_WITH_THIS = (namespaces.KEEPER, seen_files.PROGRAM, "from multiprocessing.resource_tracker import")
"""Parts of the command lines of processes that each process has at most one of, until its end."""

_started: dict[int, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    os.environ[MARK] = str(os.getpid())
    os.environ["SPT_NOENV"] = "1"  # a worker's title would overwrite its variables


@pytest.fixture(autouse=True, scope="session")
def nothing_is_left() -> Iterator[None]:
    yield
    give_up_s = time.monotonic() + GONE_S * time_limits.busy()
    while True:
        # Event loops that are closed but not freed keep their fork servers; threads may keep them a while.
        time_limits.forget_closed_loops()
        gc.unfreeze()  # a thread may have kept one while a test froze what was there
        gc.collect()
        if not (found := left()) or time.monotonic() > give_up_s:
            break
        time.sleep(0.1)
    assert not found, "processes that tests have left:\n" + "\n".join(found)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """The processes that the test has started are noted."""
    try:
        return (yield)
    finally:
        for pid in tree.children(os.getpid()):
            _started.setdefault(pid, item.nodeid)


def left() -> list[str]:
    """The processes that tests have started and that run still, each with the test."""
    mark, own = f"{MARK}={os.environ[MARK]}\n", set(tree.members(os.getpid())[1:])
    found: list[str] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            environment = "".join(f"{name}={value}\n" for name, value in process.environ().items())
            if process.pid != os.getpid() and (process.pid in own or mark in environment):
                command = " ".join(process.cmdline())
                ends = any(part in command for part in END_WITH_THIS)
                if process.status() == psutil.STATUS_ZOMBIE or ends:
                    continue
                test = STARTED_BY.search(environment)
                by = test[1] if test else _started.get(process.pid, "a test that is not known")
                found.append(f"{by}: {process.pid} {command[:200]}")
    return found
