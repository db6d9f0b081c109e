"""Rollouts that wait for a busy engine lose nothing, whatever is killed meanwhile."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import anyio
import pytest
from faults.test_kill import ROW, kill
from gym_runtime import Client, connect
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from gym_view.limit import limit
from gym_view.live import Reading, view
from stubs import stub_engine
from stubs.stub_engine import StubEngine

pytestmark = [pytest.mark.fault, pytest.mark.soak, pytest.mark.anyio, pytest.mark.timeout(180)]

ROLLOUTS, HELD_AT, IN_FLIGHT, QUIET_LOOKS = 200, 20, 16, 8


async def held(gym: Client, engine: StubEngine) -> str:
    """What ``status`` says, once nothing is asked any more."""
    quiet = 0
    while quiet < QUIET_LOOKS:
        await anyio.sleep(0.25)
        said = limit(view(Reading(0.0, await gym.status())))
        quiet = quiet + 1 if engine.stats().in_flight == 1 and "wait for the engines" in said else 0
    return said


@pytest.mark.parametrize("victim", ["agent", "model"])
async def test_a_kill_while_rollouts_wait_for_the_engine_loses_nothing(victim: str) -> None:
    rows = [ROW % index for index in range(ROLLOUTS)]
    records: list[RolloutRecord] = []
    with ExitStack() as ends, stub_engine.running("--latency-s", "0.3") as engine:
        url = urlsplit(engine.url)
        other = HTTPConnection(url.hostname or "", url.port)
        ends.enter_context(closing(other))
        # With api="auto" each model worker asks once which it has.
        urls = (engine.url,)
        model = ModelSettings(provider="openai", name="stub", urls=urls, api="responses", hold_kv_usage=0.9)
        pools = make_pools(["example_session_state_mgmt"], model, workers=2, concurrency=IN_FLIGHT)
        async with running(SystemSpec(pools=tuple(pools))) as system, connect(nats=system.url) as gym:
            due = anyio.Event()

            async def disturb() -> None:
                await due.wait()
                # Another user's request, which the engine is at meanwhile.
                other.request("POST", "/v1/responses", '{"model":"fault:hang","input":"hi"}')
                engine.set_kv_usage(0.95)
                assert "95% of the cache of keys and values is in use" in await held(gym, engine)
                kill(victim)(system)
                await held(gym, engine)
                engine.set_kv_usage(0.2)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(disturb)
                async for record in gym.rollouts(
                    rows, environment="example_session_state_mgmt", in_flight=IN_FLIGHT
                ):
                    records.append(record)
                    if len(records) == HELD_AT:
                        due.set()
        turns = engine.stats().requests - 1
    assert [record.outcome for record in records if not isinstance(record.outcome, Completed)] == []
    assert Counter(record.rollout_id for record in records).most_common(1)[0][1] == 1
    assert len(records) == ROLLOUTS
    assert turns == sum(record.turns for record in records), "no turn was asked twice"
