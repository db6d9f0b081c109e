"""What all tests share."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from gym_runtime.environment import catalogue

pytest_plugins = ["time_limits"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many schedules of faults are played where one follows from a seed (simulation, tests/faults)."""
    group = parser.getgroup("seeds")
    group.addoption("--seeds", type=int, help="how many seeds to play (default: a few)")
    group.addoption("--first-seed", type=int, default=0, help="the first of them")
    group.addoption("--soak", action="store_true", help="also what takes long: cuts, full disks, clusters")


def pytest_configure(config: pytest.Config) -> None:
    """A shell's background job ignores SIGINT, and so would every program that a test interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
