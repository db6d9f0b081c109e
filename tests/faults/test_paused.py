"""A pause holds and loses nothing, whatever is killed while it lasts."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
from faults.test_kill import ROW, kill
from gym_runtime import Client, connect
from gym_runtime.bus.interface import QueueDepth
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from stubs import stub_engine

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(90)]

ROLLOUTS, PAUSED_AT, IN_FLIGHT = 200, 40, 48
NOTHING = QueueDepth(waiting=0, in_flight=0)


async def quiet(gym: Client) -> None:
    """Return when the paused run has nothing in progress, and all that is left is in its own queue."""
    while True:
        found = await gym.status()
        if (
            all(depth == NOTHING for depth in found.queues.values())
            and any(one.kind == "agent" for one in found.workers)
            and not any(one.in_use for one in found.workers if one.kind == "agent")
        ):
            return
        await anyio.sleep(0.1)


@pytest.mark.parametrize(
    "victim",
    [
        "agent",
        pytest.param("broker", marks=pytest.mark.soak),
        pytest.param("resource", marks=pytest.mark.soak),
        pytest.param("model", marks=pytest.mark.soak),
    ],
)
async def test_a_kill_during_a_pause_loses_and_repeats_nothing(victim: str) -> None:
    rows = [ROW % index for index in range(ROLLOUTS)]
    records: list[RolloutRecord] = []
    with stub_engine.running("--latency-s", "0.1") as engine:
        model = ModelSettings(provider="openai", name="stub", urls=(engine.url,))
        pools = make_pools(["example_session_state_mgmt"], model, workers=2, concurrency=IN_FLIGHT)
        async with running(SystemSpec(pools=tuple(pools))) as system, connect(nats=system.url) as gym:
            due = anyio.Event()

            async def disturb() -> None:
                await due.wait()
                (info,) = await gym.runs()
                await gym.pause(info.run)
                kill(victim)(system)
                await quiet(gym)
                (view,) = (await gym.progress([info])).values()
                assert view.control is not None
                assert view.control.paused
                finished = {record.rollout_id for record in records}
                own = await gym.driver.bus.counts(f"task.=.*.{info.run}.>")
                # Also the tasks whose result the agent had stored when it was killed, but not yet confirmed.
                waiting = {subject.split(".", 3)[3] for subject in own} - finished
                assert len(waiting) == min(IN_FLIGHT, ROLLOUTS - len(finished))
                await gym.resume(info.run)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(disturb)
                async for record in gym.rollouts(
                    rows, environment="example_session_state_mgmt", in_flight=IN_FLIGHT
                ):
                    records.append(record)
                    if len(records) == PAUSED_AT:
                        due.set()
    assert [record.outcome for record in records if not isinstance(record.outcome, Completed)] == []
    assert Counter(record.rollout_id for record in records).most_common(1)[0][1] == 1
    assert len(records) == ROLLOUTS
