"""The figures of a whole system: exact for rollouts whatever is killed, never going down."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import pytest
from gym_runtime.client import Counter
from gym_runtime.messages import metric_names
from gym_runtime.messages.metric_names import Figures
from gym_runtime.messages.stored_records import RunInfo
from gym_runtime.rpc.members import Heartbeat, all_workers, encode_heartbeat
from gym_runtime.rpc.meter import Meter
from gym_testing.background import hosting
from gym_view.metrics.gathering import FORGOTTEN_S, GATHER_S, SystemFigures
from msgspec.structs import replace
from runtime.client.running_client import NAME, RunningClient, running_client

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]
ROLLOUTS = metric_names.ROLLOUTS
SOON_S = 15


@asynccontextmanager
async def observed(here: RunningClient) -> AsyncGenerator[SystemFigures]:
    async with here.system.broker.connect("metrics") as bus, hosting() as tasks:
        figures = SystemFigures(bus)
        tasks.start_soon(figures.follow)
        yield figures


async def count(figures: SystemFigures, wanted: int) -> Figures:
    """The figures, once they have so many rollouts; fails if they never do."""
    with anyio.fail_after(SOON_S):
        while (found := figures.figures()).total(ROLLOUTS) != wanted:
            await anyio.sleep(0.05)
    return found


async def active(figures: SystemFigures, wanted: int) -> None:
    """Return when so many runs are active."""
    with anyio.fail_after(SOON_S):
        while figures.figures().total(metric_names.ACTIVE_RUNS) != wanted:
            await anyio.sleep(0.05)


async def test_rollouts_are_counted_as_the_client_gets_them() -> None:
    async with running_client() as here, observed(here) as figures:
        records = [record async for record in here.rollouts(10)]
        found = await count(figures, 10)
        environment = {"gym.environment": NAME}
        assert found.total(ROLLOUTS, {"gym.outcome": "completed", **environment}) == 10
        assert found.total(metric_names.ROLLOUT_TURNS) == sum(record.turns for record in records) == 20
        assert found.total(metric_names.ROLLOUT_TOOL_CALLS, environment) == 10
        assert found.total(metric_names.ROLLOUT_ROWS) == sum(len(record.row) for record in records)
        rewards = found.distribution(metric_names.ROLLOUT_REWARD)
        assert (rewards.count, rewards.total) == (10, sum(record.reward or 0 for record in records))
        assert found.total(metric_names.ACTIVE_RUNS) == 0


async def test_a_run_that_was_over_before_is_counted_once() -> None:
    async with running_client() as here:
        _ = [record async for record in here.rollouts(3)]
        async with observed(here) as figures:
            await count(figures, 3)
            _ = [record async for record in here.rollouts(2)]
            await count(figures, 5)


async def test_a_closed_run_counts_once_and_takes_no_memory_of_its_own() -> None:
    async with running_client() as here, observed(here) as figures:
        for done in (3, 6, 9):
            _ = [record async for record in here.rollouts(3)]
            await count(figures, done)
        with anyio.fail_after(SOON_S):
            while figures._runs:
                await anyio.sleep(0.05)
        runs = here.gym.driver
        # A second collector may close it, too; and a run of the same name may be begun later.
        last = (await runs.runs())[-1]
        await runs.close_run(last)
        _ = [record async for record in here.rollouts(1)]
        await count(figures, 10)
        await runs.open_run(RunInfo(run=last.run, total=1))
        with anyio.fail_after(SOON_S):
            while figures.figures().total(metric_names.ACTIVE_RUNS) != 1:
                await anyio.sleep(0.05)
        await runs.close_run(last)
        await count(figures, 13)


async def test_what_workers_count_stays_when_they_are_gone() -> None:
    async with running_client() as here, observed(here) as figures:
        _ = [record async for record in here.rollouts(4)]
        await here.system.add_agent(name="agent-2")
        await anyio.sleep(2 * GATHER_S)
        before = figures.figures()
        assert before.total(metric_names.WORKERS, {"gym.worker.kind": "agent"}) == 2
        assert before.distribution(metric_names.HOP_DURATION, {"gym.hop": "model"}).count == 8
        assert before.distribution(metric_names.RESOURCE_DURATION, {"gym.operation": "tool"}).count == 4
        assert before.distribution(metric_names.ENGINE_DURATION, {"error.type": ""}).count == 8
        assert before.distribution(metric_names.QUEUE_WAIT).count == 4
        here.system.kill("agent-1")
        with anyio.fail_after(SOON_S):
            while figures.figures().total(metric_names.WORKERS, {"gym.worker.kind": "agent"}) != 1:
                await anyio.sleep(0.1)
        after = figures.figures()
        assert after.distribution(metric_names.HOP_DURATION) == before.distribution(metric_names.HOP_DURATION)
        assert after.total(ROLLOUTS) == 4


@pytest.mark.slow
async def test_a_long_outage_of_the_broker_is_no_silence_of_the_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first look after it may come before the workers have connected again."""
    alive = True

    async def present(bus: Any) -> list[Heartbeat]:
        return await all_workers(bus) if alive else []

    async with running_client() as here, here.system.broker.connect("metrics") as bus:
        figures = SystemFigures(bus)
        _ = [record async for record in here.rollouts(2)]
        await figures.look()
        monkeypatch.setattr("gym_view.metrics.gathering.all_workers", present)
        alive = False
        await anyio.sleep(2 * FORGOTTEN_S)
        await figures.look()
        _ = [record async for record in here.rollouts(2)]
        alive = True
        await anyio.sleep(GATHER_S)
        await figures.look()
        assert figures.figures().distribution(metric_names.HOP_DURATION, {"gym.hop": "model"}).count == 8
        # A worker that is silent while others are heard is forgotten all the same.
        alive = False
        for _ in range(2 * int(FORGOTTEN_S / 20)):
            await anyio.sleep(20)
            await figures.look()
        assert not figures._counted
        assert figures.figures().distribution(metric_names.HOP_DURATION, {"gym.hop": "model"}).count == 8


async def test_a_worker_that_leaves_in_order_tells_what_it_counted_last() -> None:
    async with running_client() as here, observed(here) as figures:
        await anyio.sleep(1.5 * GATHER_S)
        _ = [record async for record in here.rollouts(4)]
        here.system.stop("model-1")
        with anyio.fail_after(GATHER_S / 2):
            while figures.figures().distribution(metric_names.ENGINE_DURATION).count != 8:
                await anyio.sleep(0.01)


async def test_no_rollout_is_lost_or_counted_twice_when_an_agent_is_killed() -> None:
    async with running_client(slots=4) as here, observed(here) as figures:
        await here.system.add_agent(name="agent-2", slots=4)
        records = 0
        async with aclosing(here.rollouts(60)) as found:
            async for _ in found:
                records += 1
                if records == 20:
                    here.system.kill("agent-1")
        assert records == 60
        await count(figures, 60)
        await anyio.sleep(3 * GATHER_S)
        await count(figures, 60)


async def test_a_published_run_is_counted_before_anyone_collects_it() -> None:
    async with running_client() as here, observed(here) as figures:
        info = RunInfo(run="one", total=5, environments=[NAME], agents=["tool_loop"], repeats=5)
        await here.gym.driver.open_run(info)
        tasks = enumerate(here.tasks("one", 5))
        await here.gym.driver.publish(replace(task, task_index=0, rollout_index=n) for n, task in tasks)
        found = await count(figures, 5)
        assert found.total(metric_names.ACTIVE_RUNS) == 0, "it waits for its collector only: no alert"
        written = found.total(metric_names.ROLLOUT_TOKENS, {"gen_ai.token.type": "output"})
        assert found.total(metric_names.SAMPLED_TOKENS) == written
        assert len([record async for record in here.gym.collect("one")]) == 5
        await here.gym.driver.finish_run(info)
        await count(figures, 5)


async def test_a_run_that_is_paused_is_not_active_and_raises_no_alert() -> None:
    async with running_client() as here, observed(here) as figures:
        await here.gym.driver.open_run(RunInfo(run="one", total=5, environments=[NAME], agents=["tool_loop"]))
        await active(figures, 1)
        await here.gym.pause("one")
        await active(figures, 0)
        await here.gym.resume("one")
        await active(figures, 1)


async def test_what_is_left_of_a_collected_run_counts_the_same() -> None:
    async with running_client() as here:
        info = RunInfo(run="one", total=5, environments=[NAME], agents=["tool_loop"])
        await here.gym.driver.open_run(info)
        await here.gym.driver.publish(here.tasks("one", 5))
        assert len([record async for record in here.gym.collect("one")]) == 5
        await here.gym.driver.finish_run(info)
        async with observed(here) as figures:
            await count(figures, 5)


async def test_a_client_that_takes_a_run_up_adds_to_what_the_dead_one_counted() -> None:
    async with running_client() as here, observed(here) as figures:
        [record] = [record async for record in here.rollouts(1)]
        await count(figures, 1)
        first = Counter()
        await anyio.sleep(1)
        second = Counter()
        for counter, counted in ((first, 2), (second, 3)):
            for _ in range(counted):
                counter.add(record)
        info = RunInfo(run="two", total=5, attached=True)
        for counter in (first, second):
            await here.gym.driver.open_run(counter.told(info))
            await anyio.sleep(0.1)
        await here.gym.driver.open_run(
            second.told(RunInfo(run="two", total=5, attached=True, state="finished"))
        )
        await count(figures, 1 + 2 + 3)


async def test_an_answer_that_was_overtaken_takes_nothing_back() -> None:
    async with running_client() as here, observed(here) as figures:
        [record] = [record async for record in here.rollouts(1)]
        counter = Counter()
        counter.add(record)
        late = counter.figures()
        counter.add(record)
        info = RunInfo(run="two", total=2, attached=True, state="finished")
        await here.gym.driver.open_run(counter.told(info))
        await count(figures, 3)
        meter = Meter()
        meter.add(metric_names.RETRIES, "agent", "NoWorker", by=2)
        counted = replace(meter.figures(), cpu_s=2.0)
        before = replace(counted, counts=[], cpu_s=1.0)
        for kind, name, told in (("client", "two", late), ("agent", "x", counted), ("agent", "x", before)):
            heartbeat = Heartbeat(worker=name, kind=kind, pools=[], started_s=1.0, figures=told)
            await here.gym.driver.bus.publish(f"gone.{kind}.{name}", encode_heartbeat(heartbeat))
        with anyio.fail_after(SOON_S):
            while not figures.figures().total(metric_names.RETRIES):
                await anyio.sleep(0.01)
        await anyio.sleep(0.1)
        assert figures.figures().total(metric_names.RETRIES) == 2
        assert figures.figures().total(ROLLOUTS) == 3


async def test_queues_and_capacity_are_of_the_moment() -> None:
    async with running_client() as here, observed(here) as figures:
        await anyio.sleep(2 * GATHER_S)
        found = figures.figures()
        assert found.total(metric_names.CAPACITY, {"gym.worker.kind": "model", "gym.pool": "policy"}) == 100
        assert found.total(metric_names.QUEUE, {"gym.agent": "tool_loop", "gym.state": "waiting"}) == 0
        assert figures.looked_s > anyio.current_time() - 2 * GATHER_S
