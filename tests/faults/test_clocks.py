"""Machines whose clocks differ: what travels is the time that is left, so nothing fails for it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from gym_runtime import connect
from gym_runtime.client import RunInfo, make_pools
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import launch
from gym_runtime.workers.adapter import ModelSettings

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(90)]

SHIFTED = "import time\ntrue = time.time\ntime.time = lambda: true() + {shift_s}\n"
ROW = {"responses_create_params": {"input": "count"}, "initial_count": 3, "expected_count": 3}


@pytest.mark.parametrize("kind", ["agent", "resource", "model"])
@pytest.mark.parametrize("shift_s", [60, -60])
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
            await gym.driver.open_run(RunInfo(run="r", total=5))
            await gym.driver.publish(tasks)
            assert await gym.driver.follow("r", 5, records.append)
        assert [type(record.outcome) for record in records] == [Completed] * 5
    finally:
        for system in systems:
            await system.stop()
        broker.stop()
