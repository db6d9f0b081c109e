"""``gym-runtime drain`` of the worker that a trainer's process holds."""

from __future__ import annotations

import json

import anyio
import pytest
from gym_runtime import connect
from gym_runtime.client import SyncClient
from gym_runtime.errors import GymError
from gym_runtime.messages.calls import Draining
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.timing import TRAINER_DRAIN_S
from trainers.trainers_engine import GatedEngine, counter_row

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_a_trainer_that_is_drained_finishes_its_rollouts_and_leaves(system: SyncClient) -> None:
    engine = GatedEngine()
    source, made = engine.source(), list[RolloutRecord]()

    async def rollout() -> None:
        made.append(await source.rollout(json.dumps(counter_row()), {}))

    async with connect(system.urls[0]) as gym, anyio.create_task_group() as tasks:
        tasks.start_soon(rollout)
        await engine.asked.wait()
        pool = (await source._open()).pool
        for _ in range(2):
            ((worker, answer),) = await gym.drain(pool)
            assert worker.worker == pool
            assert answer == Draining(in_flight=1, within_s=TRAINER_DRAIN_S)
        with pytest.raises(GymError, match=r"was asked to leave the system \(gym-runtime drain\)"):
            await source.rollout(json.dumps(counter_row()), {})
        engine.opened.set()
    assert made[0].reward == 1.0
    assert source._lifetime is not None
    await source._lifetime._closed.wait()
    workers = await anyio.to_thread.run_sync(system.workers)
    assert pool not in {one.worker for one in workers}
    await source.close()
