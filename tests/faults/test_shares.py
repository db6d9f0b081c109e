"""Runs divide a real system by their weights; a weight that is changed while agents are killed is obeyed."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing

import anyio
import pytest
from faults.test_kill import ROW, kill
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import Completed
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from stubs import stub_engine

pytestmark = [pytest.mark.fault, pytest.mark.soak, pytest.mark.anyio, pytest.mark.timeout(400)]

SLOTS, WARM_S, MEASURED_S = 40, 15.0, 60.0
SHARES = {"one": 1.0, "two": 2.0, "five": 5.0}


async def test_rollouts_over_a_minute_are_within_five_percent_of_the_shares() -> None:
    rows = [ROW % index for index in range(20_000)]
    done, seen, runs = Counter[str](), Counter[str](), dict[str, str]()
    with stub_engine.running("--latency-s", "0.5") as engine:
        model = ModelSettings(provider="openai", name="stub", urls=(engine.url,))
        pools = make_pools(["example_session_state_mgmt"], model, workers=2, concurrency=SLOTS)
        async with running(SystemSpec(pools=tuple(pools))) as system, connect(nats=system.url) as gym:

            async def go(name: str) -> None:
                records = gym.rollouts(
                    rows, environment="example_session_state_mgmt", share=SHARES[name], in_flight=200
                )
                async with aclosing(records):
                    async for record in records:
                        assert isinstance(record.outcome, Completed)
                        done[name] += 1
                        seen[record.rollout_id] += 1
                        runs[name] = record.rollout_id.split(".")[0]

            async def measured(expected: dict[str, float]) -> None:
                await anyio.sleep(WARM_S)
                before = done.copy()
                await anyio.sleep(MEASURED_S)
                ran = done - before
                found = {name: ran[name] / ran.total() for name in expected}
                total = sum(expected.values())
                print(f"{ran.total()} rollouts in {MEASURED_S:.0f} s:", found)
                for name, weight in expected.items():
                    assert abs(found[name] - weight / total) <= 0.05, (name, found)

            async with anyio.create_task_group() as tasks:
                for name in SHARES:
                    tasks.start_soon(go, name)
                await measured(SHARES)
                # In mid-pull, while one of the workers that pull is killed.
                await gym.set_run(runs["one"], share=5)
                kill("agent")(system)
                await gym.set_run(runs["five"], share=1)
                kill("agent")(system)
                await measured({"one": 5.0, "two": 2.0, "five": 1.0})
                tasks.cancel_scope.cancel()
    assert seen.most_common(1)[0][1] == 1, "no rollout came twice"
