"""A judge has answered, the resource worker dies before its verdict: the judge is not asked, and paid, again.

A real broker, real processes, and a real HTTP server as the judge, which counts what it is asked.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import msgspec
import pytest
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from stubs import stub_engine

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(90)]

ENVIRONMENT = str(Path(__file__).parent / "environments" / "patient_judge.py")
ROLLOUTS = 8


def asking(folder: Path) -> set[int]:
    """The processes that have a judge's answer."""
    return {int(path.stem) for path in folder.glob("*.asked")}


@pytest.mark.parametrize(("durability", "asked"), [("turn", ROLLOUTS), ("result", 2 * ROLLOUTS)])
async def test_a_judge_is_not_asked_again_when_the_verifiers_process_is_killed(
    tmp_path: Path, durability: str, asked: int
) -> None:
    records: list[RolloutRecord] = []
    rows = [
        {"responses_create_params": {"input": f"q{number}"}, "folder": str(tmp_path)}
        for number in range(ROLLOUTS)
    ]
    with stub_engine.running() as policy, stub_engine.running() as judge:
        models = {
            engine: ModelSettings(provider="openai", name="stub", urls=(engine.url,), api="responses")
            for engine in (policy, judge)
        }
        pools = make_pools(
            [ENVIRONMENT], models[policy], roles={"judge": models[judge]}, concurrency=ROLLOUTS
        )
        async with running(SystemSpec(pools=pools)) as system, connect(nats=system.url) as gym:

            async def make() -> None:
                made = gym.rollouts(rows, environment=ENVIRONMENT, durability=durability)
                records.extend([record async for record in made])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(make)
                while judge.stats().requests < ROLLOUTS or not asking(tmp_path):
                    await anyio.sleep(0.02)
                if durability == "turn":
                    while len(await gym.driver.bus.latest("journal.*.*.*.*.role.*")) < ROLLOUTS:
                        await anyio.sleep(0.02)
                (killed,) = asking(tmp_path)
                os.kill(killed, signal.SIGKILL)
                (tmp_path / "release").touch()
        assert (policy.stats().requests, judge.stats().requests) == (ROLLOUTS, asked)
    assert [record.outcome for record in records] == [Completed()] * ROLLOUTS
    for record in records:
        row = msgspec.json.decode(record.row)
        assert (record.reward, record.attempt, row["_gym"]["roles"]["judge"]["calls"]) == (1.0, 1, 1)
        assert row["verified_by"] != killed
