"""One row of forty cancels what it should not: it fails alone, and the run ends.

A cancelled task that is awaited, and code that cancels its own task, cost their worker nothing. Code that
cancels all tasks of its worker ends it, also if it then ignores its own cancellation; another one is started.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, running
from gym_runtime.system.watchdogs import UNSERVED_S
from gym_runtime.workers.adapter import ModelSettings
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(150)]

ROWS, LEAKS = 40, 7
SOON_S = 20.0
PLACES = {
    "verify": "leaking",
    "tool": "leaking",
    "open": "leaking",
    "agent": "leaking_asked",
    "model": "leaking",
    "compare": "leaking_compared",
}
TOOL = {"type": "function", "name": "work", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent / "environments")
    monkeypatch.setenv("PYTHONPATH", ".")


def row(number: int, at: str, way: str) -> bytes:
    said = f"leak {way}" if number == LEAKS and at == "model" else f"task {number}"
    params: dict[str, Any] = {"input": [{"role": "user", "content": said}], "tools": [TOOL]}
    at = at if number == LEAKS else ""
    return msgspec.json.encode({"responses_create_params": params, "at": at, "way": way})


async def run(at: str, way: str, within_s: float) -> tuple[list[RolloutRecord], Counter[str]]:
    """All records, and how many workers of each kind were started again."""
    restarts: Counter[str] = Counter()

    async def watch(system: System) -> None:
        async for event in system.events():
            restarts[event.kind] += event.event == "restarted"

    name = "message" if PLACES[at] == "leaking_compared" else "tool-then-message"
    model = ModelSettings(provider="leaking_model" if at == "model" else "scripted", name=name)
    pools = make_pools([PLACES[at]], model, workers=2, concurrency=ROWS)
    rows = [row(number, at, way) for number in range(ROWS)]
    repeats = 2 if at == "compare" else 1
    records: list[RolloutRecord] = []
    async with (
        running(SystemSpec(pools=pools)) as system,
        connect(nats=system.url) as gym,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(watch, system)
        with anyio.fail_after(within_s * busy()):
            async for record in gym.rollouts(rows, environment=PLACES[at], repeats=repeats):
                records.append(record)
        tasks.cancel_scope.cancel()
    assert len(records) == len({(one.task_index, one.rollout_index) for one in records}) == ROWS * repeats
    others = [record for record in records if record.task_index != LEAKS]
    failed = [one for one in others if not isinstance(one.outcome, Completed)]
    assert failed == [], [one.outcome for one in failed]
    assert {one.reward for one in others} == {1.0}
    return records, restarts


def failure(records: list[RolloutRecord]) -> tuple[str, str]:
    outcome, *others = [record.outcome for record in records if record.task_index == LEAKS]
    assert isinstance(outcome, Failed)
    assert all(other == outcome for other in others)
    return outcome.fault.stage, outcome.fault.message


@pytest.mark.parametrize("way", ["task", "self"])
@pytest.mark.parametrize("at", PLACES)
async def test_code_that_cancels_itself_fails_its_rollout_and_no_other(at: str, way: str) -> None:
    records, restarts = await run(at, way, SOON_S)
    stage, message = failure(records)
    assert stage == at
    assert "the runtime had cancelled nothing" in message
    assert "leaking.py:" in message
    assert not +restarts


@pytest.mark.soak
@pytest.mark.parametrize("at", ["model", "verify", "agent"])
async def test_code_that_cancels_everything_ends_its_worker_and_another_one_is_started(at: str) -> None:
    records, restarts = await run(at, "all", 2 * SOON_S)
    _, message = failure(records)
    assert "ended one after the other" in message or "were lost" in message
    assert restarts.total() >= 2


@pytest.mark.parametrize("at", ["verify", pytest.param("agent", marks=pytest.mark.soak)])
async def test_a_worker_that_code_keeps_from_ending_is_ended(at: str) -> None:
    # A deaf agent's task is delivered again before its worker is ended, so it does not count as a crash: the
    # rollout fails at its sixth loss, after about 50 s.
    records, restarts = await run(at, "deaf", 2 * SOON_S + 4 * UNSERVED_S)
    message = failure(records)[1]
    assert "ended one after the other" in message or "were lost" in message
    assert restarts.total() >= 2  # the last one's may be told after the run
