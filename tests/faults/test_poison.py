"""One rollout that ends its workers fails, alone, after few of them; all others are made."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import connect
from gym_runtime.client import Client, make_pools
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from gym_runtime.rollout.account import CLEARED_AT_MOST
from gym_runtime.rpc.quarantine import MAX_CRASHES, MAX_DEATHS
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, running
from gym_runtime.workers.adapter import ModelSettings
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(150)]

ENVIRONMENTS = Path(__file__).parent / "environments"
ROWS = 400
POISON = 123


def row(number: int, poison: bool, **more: Any) -> bytes:
    said = f"{'poison' if poison else 'task'} {number}"
    params = {"input": [{"role": "user", "content": said}]}
    return msgspec.json.encode({"responses_create_params": params, "poison": poison, **more})


async def run(
    environment: str,
    *,
    poison: set[int],
    model: str = "scripted",
    takes_s: Callable[[int], float] = lambda number: 0.0,
) -> tuple[list[RolloutRecord], Counter[str]]:
    """All records, and how many workers of each kind were started again."""
    restarts: Counter[str] = Counter()

    async def watch(system: System) -> None:
        async for event in system.events():
            if event.event == "restarted":
                restarts[event.kind] += 1

    settings = ModelSettings(provider=model, name="message")
    pools = make_pools([environment], settings, workers=2, concurrency=1024)
    rows = [row(number, number in poison, takes_s=takes_s(number)) for number in range(ROWS)]
    records: list[RolloutRecord] = []
    async with running(SystemSpec(pools=pools)) as system, anyio.create_task_group() as tasks:
        tasks.start_soon(watch, system)
        async with connect(nats=system.url) as gym:
            async for record in gym.rollouts(rows, environment=environment):
                records.append(record)
        # The supervisor reports an end a moment later than the rollout's failure does.
        with anyio.move_on_after(10 * busy()):
            while restarts.total() < MAX_DEATHS + ("agent" in restarts):
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    return records, restarts


def failures(records: list[RolloutRecord]) -> dict[int, str]:
    assert len(records) == len({record.task_index for record in records}) == ROWS
    failed = {
        record.task_index: f"{record.outcome.fault.stage}: {record.outcome.fault.message}"
        for record in records
        if isinstance(record.outcome, Failed)
    }
    others = [record for record in records if record.task_index not in failed]
    assert {type(record.outcome) for record in others} == {Completed}
    assert all(record.reward == 1.0 for record in others)
    return failed


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ENVIRONMENTS)


@pytest.mark.soak
@pytest.mark.parametrize("takes_s", [0.0, 0.5])
async def test_a_verification_that_ends_its_worker(takes_s: float) -> None:
    records, restarts = await run("poison", poison={POISON}, takes_s=lambda number: takes_s)
    failed = failures(records)
    assert list(failed) == [POISON]
    assert "workers of resource 'poison' ended one after the other" in failed[POISON]
    assert restarts == {"resource": 3}


@pytest.mark.soak
async def test_several_of_them() -> None:
    poison = {3, 99, 250}
    records, restarts = await run("poison", poison=poison)
    assert set(failures(records)) == poison
    assert set(restarts) == {"resource"}
    assert restarts["resource"] <= 12


@pytest.mark.soak
async def test_several_that_end_their_workers_late_beside_innocent_ones_that_take_longer() -> None:
    """Each innocent one is lost with both workers before it is executed alone."""
    poison, slow = {3, 99, 250}, {5, 20, 90, 120, 200, 300}
    records, restarts = await run(
        "poison", poison=poison, takes_s=lambda n: 1.5 if n in poison else 2.0 if n in slow else 0.0
    )
    assert set(failures(records)) == poison
    assert set(restarts) == {"resource"}
    assert restarts["resource"] <= 4 * len(poison)


async def test_a_session_that_cannot_be_rebuilt() -> None:
    records, restarts = await run("poison_once", poison={POISON})
    assert list(failures(records)) == [POISON]
    assert restarts == {"resource": 3}


async def test_a_conversation_that_ends_its_model_worker() -> None:
    records, restarts = await run("poison", poison={POISON}, model="poison_model")
    failed = failures(records)
    assert list(failed) == [POISON]
    assert "workers of model" in failed[POISON]
    assert set(restarts) == {"model"}
    assert restarts["model"] == 3


async def test_a_rollout_that_ends_its_agent_worker() -> None:
    records, restarts = await run("poison_asked", poison={POISON})
    failed = failures(records)
    assert list(failed) == [POISON]
    assert "agent workers in a row were lost" in failed[POISON]
    assert restarts == {"agent": MAX_CRASHES}


@pytest.mark.soak
async def test_a_rollout_that_ends_an_agent_worker_after_each_turn() -> None:
    records, restarts = await run("poison_turns", poison={POISON})
    failed = failures(records)
    assert list(failed) == [POISON]
    assert "agent workers in a row were lost" in failed[POISON]
    assert restarts == {"agent": CLEARED_AT_MOST + MAX_CRASHES - 1}


@pytest.mark.soak
async def test_a_slow_rollout_whose_agent_workers_are_killed_from_outside_is_completed() -> None:
    """Each worker is killed before the first turn is stored, more often than a rollout may crash workers."""
    settings = ModelSettings(provider="scripted", name="message", options={"latency_s": 10.0})
    pools = make_pools(["poison"], settings)
    killed: set[int] = set()

    async def kill(gym: Client) -> None:
        while len(killed) <= MAX_CRASHES:
            for worker in (await gym.status()).workers:
                if worker.kind == "agent" and worker.in_use and worker.pid not in killed:
                    killed.add(worker.pid)
                    os.kill(worker.pid, signal.SIGKILL)
            await anyio.sleep(0.05)

    async with (
        running(SystemSpec(pools=pools)) as system,
        connect(nats=system.url) as gym,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(kill, gym)
        rows = [row(0, poison=False, takes_s=0.0)]
        records = [record async for record in gym.rollouts(rows, environment="poison")]
        tasks.cancel_scope.cancel()
    assert len(killed) == MAX_CRASHES + 1
    assert [type(record.outcome) for record in records] == [Completed]
