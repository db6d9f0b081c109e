"""A real system under seeded schedules of kills, freezes, cuts and duplicates: the books are always right.

::

    python -m pytest tests/faults/test_schedules.py --seeds 50
    python -m pytest tests/faults/test_schedules.py --seeds 1 --first-seed 17

A failure shows its schedule and the command's log.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
import time_limits
from faults.faulty_system import Aftermath, faulty_system
from faults.schedule import ROLLOUTS, Schedule
from stubs import stub_engine

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(300)]

QUICK = (2,)
"""Schedules after which nothing has to wait for a session's time limit; CI plays these."""
LATENCY_S = "0.1"
MARK = "GYM_FAULTS_MARK"
GONE_S = 30.0
"""A process for heavy verification that was being warmed, at the lowest priority, learns late of its end."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, number = metafunc.config.getoption("first_seed"), metafunc.config.getoption("seeds")
        metafunc.parametrize("seed", range(first, first + number) if number else QUICK)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """The folder for temporary files of every process of one test."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> str:
    """A variable by which every process of one test is known, and the folders in which they run."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(MARK, value)
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.delenv("GYM_NATS_URL", raising=False)
    monkeypatch.chdir(Path(__file__).parent / "environments")
    return value


def marked(value: str) -> list[str]:
    """The processes that carry a mark."""
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def keys(lines: list[dict[str, Any]]) -> Counter[tuple[int, int]]:
    return Counter((line["_ng_task_index"], line["_ng_rollout_index"]) for line in lines)


def violations(left: Aftermath) -> list[str]:
    """What does not hold after a schedule."""
    found: list[str] = []
    done, failed = keys(left.rows), keys(left.failures)
    if left.status:
        found.append(f"the command ended with status {left.status}")
    if missing := ROLLOUTS - len(done.keys() | failed.keys()):
        found.append(f"{missing} rollouts have neither a row nor a failure")
    if twice := [key for key, count in done.items() if count > 1]:
        found.append(f"several rows for {twice}")
    # Only a resumed run makes a failed rollout again, and adds to what stands there.
    if not left.resumed and (both := [key for key in failed if failed[key] + done[key] > 1]):
        found.append(f"several results for {both}")
    for row in left.rows:
        outcome = row["_gym"]["outcome"]["type"]
        if outcome not in ("completed", "truncated") or row.get("reward") != 1.0:
            found.append(f"{row['_gym']['rollout_id']} is {outcome} with reward {row.get('reward')}")
    found += [f"a failure with a reward: {line['_gym']}" for line in left.failures if "reward" in line]
    if left.sessions is None:
        found.append("a resource worker that should stay does not say how many sessions it has")
    elif left.sessions:
        found.append(f"sessions are open: {left.sessions}")
    # An overtaken attempt may commit after its run was closed: its record is its rollout's only one.
    if stored := {name: count for name, count in left.stored.items() if not name.startswith("rollout.")}:
        found.append(f"the broker still has {stored}")
    return found


async def test_after_a_schedule_of_faults_the_books_are_right(
    seed: int, mark: str, scratch: Path, tmp_path: Path
) -> None:
    schedule = Schedule.of(seed)
    with stub_engine.running("--latency-s", LATENCY_S) as engine:
        async with faulty_system(tmp_path, engine) as system:
            await system.inject_all(schedule)
            left = await system.settle()
    wrong = violations(left)
    with anyio.move_on_after(GONE_S * time_limits.busy()):
        while marked(mark):
            await anyio.sleep(0.05)
    wrong += [f"is still running: {process}" for process in marked(mark)]
    wrong += [f"is left in the folder for temporary files: {name}" for name in os.listdir(scratch)]
    report = "\n".join([*wrong, str(schedule), left.log[-4000:]])
    assert not wrong, report
    assert len(left.rows) >= ROLLOUTS // 2, f"most should survive, on a busy machine too\n{report}"


def test_a_schedule_is_its_seed() -> None:
    assert [Schedule.of(seed) for seed in range(50)] == [Schedule.of(seed) for seed in range(50)]
    actions = {injection.action for seed in range(50) for injection in Schedule.of(seed).injections}
    assert actions == {"kill", "freeze", "cut", "broker", "double", "client"}
