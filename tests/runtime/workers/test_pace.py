"""A model worker keeps to its share of the requests per minute."""

from __future__ import annotations

import anyio
import msgspec
import pytest
from gym_runtime.client import Client
from gym_runtime.environment import catalogue
from gym_runtime.workers.adapter import ModelSettings
from gym_runtime.workers.call_limits import Pace
from gym_testing.background import hosting
from gym_testing.small_system import Engine, small_system
from runtime.client.running_client import COUNT, NAME, rows

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_calls_begin_at_even_distances_and_a_cancelled_one_takes_no_place() -> None:
    pace, at_s = Pace(30), list[float]()
    began_s = anyio.current_time()

    async def ask() -> None:
        await pace.wait()
        at_s.append(anyio.current_time() - began_s)

    async def give_up() -> None:
        with anyio.move_on_after(1):
            await pace.wait()

    async with anyio.create_task_group() as tasks:
        for work in (ask, give_up, ask, ask):
            tasks.start_soon(work)
    assert at_s == pytest.approx([0, 2, 4], abs=0.01)
    await anyio.sleep(60)
    await ask()
    await ask()
    assert at_s[4] - at_s[3] == pytest.approx(2, abs=0.01)  # what was not used is not saved up


async def test_every_request_to_the_engine_keeps_the_pace() -> None:
    engine = Engine(*COUNT)
    async with small_system() as system, hosting() as tasks:
        await system.add_resource(catalogue.environment(NAME))
        await system.add_model(engine, capacity=100, per_minute=20.0)
        await system.add_agent(slots=8)
        client = Client(system.bus, tasks)
        records = [record async for record in client.rollouts(rows(4), environment=NAME)]
    assert len(records) == 4
    assert len(engine.asked_s) == 8
    gaps = [later - earlier for earlier, later in zip(engine.asked_s, engine.asked_s[1:], strict=False)]
    assert min(gaps) >= 3 - 0.01


def test_a_rate_below_zero_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="requests_per_minute"):
        msgspec.convert({"provider": "p", "name": "n", "requests_per_minute": -1}, ModelSettings)
