"""A supervisor that was started before it is known what it is to run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from gym_runtime.system import early_supervisor
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import launch


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    yield
    assert not early_supervisor._waiting


@pytest.mark.timeout(60)
def test_it_runs_the_system_that_is_launched_next_and_no_other() -> None:
    early_supervisor.start()
    (waiting,) = early_supervisor._waiting
    first, second = launch(SystemSpec()), launch(SystemSpec())
    try:
        assert first.pid == waiting.pid
        assert second.pid != waiting.pid
    finally:
        first.kill()
        second.kill()


@pytest.mark.timeout(60)
def test_one_that_died_meanwhile_is_replaced() -> None:
    early_supervisor.start()
    (waiting,) = early_supervisor._waiting
    waiting.kill()
    waiting.communicate()
    taken = early_supervisor.take()
    try:
        assert taken.pid != waiting.pid
    finally:
        taken.kill()
        taken.communicate()


@pytest.mark.timeout(60)
def test_it_ends_without_a_word_when_its_owner_ends_without_a_system() -> None:
    process = early_supervisor.spawn()
    assert process.communicate() == (b"", None)
    assert process.returncode == 2


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_command_that_starts_nothing_leaves_none() -> None:
    command = [sys.executable, "-m", "gym_runtime.cli.main", "run", "no_such_environment", "-o", "x.jsonl"]
    # Its standard error stays open as long as a child has it: this returns when all have ended.
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
