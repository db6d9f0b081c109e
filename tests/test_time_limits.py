"""A test that hangs fails alone, by name, wherever it hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from time_limits import busy

HANGING = """
import asyncio, subprocess, time
import pytest

pytestmark = pytest.mark.timeout(3)


@pytest.fixture
def anyio_backend():
    return "asyncio", {"use_uvloop": True}


def test_in_a_call():
    time.sleep(1000)


def test_in_a_process():
    subprocess.run(["sleep", "1000"])


@pytest.mark.anyio
async def test_in_a_coroutine():
    await asyncio.sleep(1000)


async def stubborn(times):
    for _ in range(times):
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass


kept = []


@pytest.mark.anyio
@pytest.mark.parametrize("times", [2, 1000])
async def test_at_the_end_of_the_loop(times):
    kept.append(asyncio.get_running_loop().create_task(stubborn(times)))
    await asyncio.sleep(0)


def test_that_ends():
    pass


@pytest.mark.anyio
async def test_that_ends_too():
    await asyncio.sleep(0)


def test_with_a_slow_report():
    pass
"""
ONE_LOOP = """
import asyncio
import pytest

pytestmark = [pytest.mark.timeout(3), pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
async def one_loop(anyio_backend):
    yield


async def test_before_others():
    await asyncio.sleep(1000)


async def test_after_it():
    task = asyncio.current_task()
    assert task.cancelling() == 0
"""
REPORTING = """
import time
import pytest
import time_limits

time_limits.BUSY_AT_MOST = 1.0

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if item.name == "test_with_a_slow_report" and call.when == "call":
        time.sleep(6)
    return report
"""


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(120)
def test_each_hanging_test_fails_alone_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    (tmp_path / "test_one_loop.py").write_text(ONE_LOOP)
    (tmp_path / "conftest.py").write_text(REPORTING)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = timeout\n")
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "time_limits",
            "-q",
            "-rA",
            "-p",
            "no:cacheprovider",
            str(tmp_path),
        ],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = ended.stdout
    assert "6 failed, 4 passed" in said, said + ended.stderr
    hanging = ("in_a_call", "in_a_process", "in_a_coroutine")
    for name in (*hanging, "at_the_end_of_the_loop[2]", "at_the_end_of_the_loop[1000]"):
        assert f"FAILED test_hanging.py::test_{name}" in said, said
    assert "FAILED test_one_loop.py::test_before_others" in said, said
    for name in ("that_ends", "that_ends_too", "with_a_slow_report"):
        assert f"PASSED test_hanging.py::test_{name}" in said, said


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which processors a process may use")
def test_limits_are_longer_where_few_processors_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (4.0, 0.0, 0.0))
    for processors, expected in (({0, 1}, 2.0), ({0}, 4.0), (set(range(64)), 1.0)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, allowed=processors: allowed)  # pyright: ignore
        assert busy() == expected
