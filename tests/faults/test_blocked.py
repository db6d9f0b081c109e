"""A worker whose event loop is blocked for longer than a frozen one may be silent is no lost worker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio
import msgspec
import pytest
from gym_runtime import Client, connect
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, running
from gym_runtime.timing import MEMBER_GONE_S
from gym_runtime.workers.adapter import ModelSettings

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(120)]

BLOCKS_S = MEMBER_GONE_S + 2.5
ROWS = 31


@pytest.mark.parametrize("spins", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_a_verification_that_blocks_its_worker_costs_no_other_one_anything(
    spins: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv("GYM_TEST_NOTES", str(notes))
    monkeypatch.chdir(Path(__file__).parent / "environments")
    params = {"input": [{"role": "user", "content": "go"}]}
    rows = [
        msgspec.json.encode(
            {
                "responses_create_params": params,
                "number": number,
                "blocks_s": BLOCKS_S if number == 7 else 0.0,
                "spins": spins,
            }
        )
        for number in range(ROWS)
    ]
    model = ModelSettings(provider="scripted", name="message")
    pools = make_pools(["blocking"], model, workers=2, concurrency=ROWS)
    restarts: Counter[str] = Counter()
    blocked: set[str] = set()

    async def watch(system: System) -> None:
        async for event in system.events():
            restarts[event.kind] += event.event == "restarted"

    async def look(gym: Client) -> None:
        # On a busy machine a worker may say so that waits for its disk.
        while not any("blocking.py:" in place for place in blocked):
            blocked.update(one.detail["blocked"] for one in await gym.workers() if "blocked" in one.detail)

    records: list[RolloutRecord] = []
    async with (
        running(SystemSpec(pools=pools)) as system,
        connect(nats=system.url) as gym,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(watch, system)
        tasks.start_soon(look, gym)
        async for record in gym.rollouts(rows, environment="blocking"):
            records.append(record)
        tasks.cancel_scope.cancel()
    ends = Counter((type(record.outcome), record.reward, record.attempt) for record in records)
    assert ends == {(Completed, 1.0, 1): ROWS}
    assert Counter(notes.read_text().split()) == {str(number): 1 for number in range(ROWS)}
    assert not +restarts
    assert any("blocking.py:" in place for place in blocked), blocked


async def test_a_rollout_whose_only_worker_stays_blocked_names_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_TEST_NOTES", str(tmp_path / "notes"))
    monkeypatch.chdir(Path(__file__).parent / "environments")
    limit_s = 25.0  # later the broker drops the connection of the worker, which answers no ping
    row = {"responses_create_params": {"input": "go"}, "number": 0, "blocks_s": limit_s + 5}
    async with connect(model="scripted/message", environments=["blocking"]) as gym:
        async for record in gym.rollouts([row], environment="blocking", timeout_s=limit_s):
            assert isinstance(record.outcome, Failed)
            fault = record.outcome.fault
            assert (fault.kind, fault.stage) == ("deadline", "resource")
            assert ", blocked at blocking.py:" in fault.message
