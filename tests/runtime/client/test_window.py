"""A run's places: never more than there are, and refills in groups."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime.client.run import REFILL_S, Window
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_testing import virtual_clock

pytestmark = pytest.mark.anyio

RECORD = RolloutRecord(
    run="r", task_index=0, rollout_index=0, environment="e", outcome=Completed(), row=msgspec.Raw(b"{}")
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return virtual_clock.BACKEND


async def test_places_come_back_in_groups_or_after_a_moment() -> None:
    window, taken = Window(64), list[float]()

    async def take() -> None:
        while True:
            await window.take()
            taken.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        await anyio.sleep(1.0)
        assert len(taken) == 64
        for _ in range(3):
            window.release(RECORD)
        await anyio.sleep(REFILL_S / 2)
        assert len(taken) == 64, "three places are no group of four yet"
        window.release(RECORD)
        await anyio.sleep(REFILL_S / 4)
        assert len(taken) == 68
        released_s = anyio.current_time()
        window.release(RECORD)
        await anyio.sleep(1.0)
        assert len(taken) == 69
        assert taken[-1] == pytest.approx(released_s + REFILL_S)
        tasks.cancel_scope.cancel()


async def test_a_small_window_waits_for_no_group() -> None:
    window = Window(2)
    for _ in range(2):
        await window.take()
    started_s = anyio.current_time()
    window.release(RECORD)
    await window.take()
    assert anyio.current_time() == started_s
