"""Machines whose clocks differ or are set: what travels is the time that is left, so nothing fails for it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from _pytest.mark import ParameterSet
from gym_runtime import clock, connect
from gym_runtime.client import RunInfo, make_pools
from gym_runtime.client.run import Run
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import launch
from gym_runtime.workers.adapter import ModelSettings

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(90)]

SHIFTED = "import time\ntrue = time.time\ntime.time = lambda: true() + {shift_s}\n"
STEPPED = (
    "import os, time\ntrue = time.time\n"
    "time.time = lambda: true() + ({step_s} if os.path.exists({path!r}) else 0)\n"
)
ROW = {"responses_create_params": {"input": "count"}, "initial_count": 3, "expected_count": 3}


def soak(*cases: tuple[int, str]) -> list[ParameterSet]:
    """The other half, which runs with --soak."""
    return [pytest.param(*case, marks=pytest.mark.soak) for case in cases]


@pytest.mark.parametrize(
    ("shift_s", "kind"),
    [
        (60, "resource"),
        (-60, "agent"),
        (60, "model"),
        *soak((-60, "resource"), (60, "agent"), (-60, "model")),
    ],
)
async def test_a_worker_whose_clock_is_a_minute_off_fails_nothing(
    kind: str, shift_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SHIFTED.format(shift_s=shift_s))
    model = ModelSettings(provider="scripted", name="message")
    pools = make_pools(["example_session_state_mgmt"], model, concurrency=8)
    broker = Broker(tmp_path / "state")
    url = broker.start()
    systems = [launch(SystemSpec(pools=tuple(pool for pool in pools if pool.kind != kind), nats=(url,)))]
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
        off = tuple(pool for pool in pools if pool.kind == kind)
        systems.append(launch(SystemSpec(pools=off, nats=(url,))))
    try:
        for system in systems:
            await system.until("all_ready")
        records: list[RolloutRecord] = []
        async with connect(nats=url) as gym:
            (worker,) = [one for one in await gym.workers() if one.kind == kind]
            others = [one.started_s for one in await gym.workers() if one.kind != kind]
            assert abs(worker.started_s - others[0]) > 30, "the clock is not off"
            # Each rollout has less time than the minute by which the clocks differ.
            lines = [msgspec.json.encode({**ROW, "number": number}) for number in range(5)]
            tasks = expand(lines, run="r", environment="example_session_state_mgmt", timeout_s=20.0)
            info = RunInfo(run="r", total=5)
            await gym.driver.open_run(info)
            await gym.driver.publish(tasks)
            assert await Run(gym.driver, info, records.append, total=5).follow()
        assert [type(record.outcome) for record in records] == [Completed] * 5
    finally:
        for system in systems:
            await system.stop()
        broker.stop()


@pytest.mark.parametrize(
    ("step_s", "kind"),
    [
        (3600, "agent"),
        (-3600, "resource"),
        (3600, "client"),
        (-3600, "model"),
        *soak((-3600, "agent"), (3600, "resource"), (-3600, "client"), (3600, "model")),
    ],
)
async def test_a_clock_that_is_set_by_an_hour_fails_nothing_in_flight_and_no_duration_is_negative(
    kind: str, step_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = tmp_path / "set"
    (tmp_path / "sitecustomize.py").write_text(STEPPED.format(step_s=step_s, path=str(switch)))
    model = ModelSettings(provider="scripted", name="tool-then-message", options={"latency_s": 1.5})
    pools = make_pools(["example_session_state_mgmt"], model, concurrency=8)
    broker = Broker(tmp_path / "state")
    url = broker.start()
    systems = [launch(SystemSpec(pools=tuple(pool for pool in pools if pool.kind != kind), nats=(url,)))]
    if off := tuple(pool for pool in pools if pool.kind == kind):
        with monkeypatch.context() as patched:
            patched.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
            systems.append(launch(SystemSpec(pools=off, nats=(url,))))
    own_step_s = step_s if kind == "client" else 0
    own = clock.reading(lambda: time.time() + own_step_s * switch.exists(), time.monotonic)

    records: list[RolloutRecord] = []
    try:
        for system in systems:
            await system.until("all_ready")
        with own:
            async with connect(nats=url) as gym, anyio.create_task_group() as tasks:

                async def set_it() -> None:
                    while not any(one.in_use for one in await gym.workers() if one.kind == "model"):
                        await anyio.sleep(0.02)
                    switch.touch()

                tasks.start_soon(set_it)
                lines = [msgspec.json.encode({**ROW, "number": number}) for number in range(5)]
                specs = expand(lines, run="r", environment="example_session_state_mgmt", timeout_s=60.0)
                info = RunInfo(run="r", total=5)
                await gym.driver.open_run(info)
                await gym.driver.publish(specs)
                assert await Run(gym.driver, info, records.append, total=5).follow()
        assert switch.exists()
        assert [type(record.outcome) for record in records] == [Completed] * 5
        for record in records:
            assert 0 < record.duration_s < 60
            assert all(0 <= seconds < 60 for seconds in seconds_of(msgspec.json.decode(record.row)["_gym"]))
    finally:
        for system in systems:
            await system.stop()
        broker.stop()


def seconds_of(found: Any, name: str = "") -> list[float]:
    """All numbers whose names say that they are seconds."""
    if isinstance(found, dict):
        return [one for key, value in found.items() for one in seconds_of(value, key)]
    if isinstance(found, list):
        return [one for value in found for one in seconds_of(value, name)]
    return [found] if name.endswith("_s") and isinstance(found, (int, float)) else []
