"""Runs that are published here and collected there; cancelling; looking around."""

from __future__ import annotations

import gc
from contextlib import aclosing
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import connect
from gym_runtime.bus.interface import QueueDepth
from gym_runtime.client import Client, RunInfo, make_pools, new_run_id, run
from gym_runtime.client.run import Run
from gym_runtime.client.runs import ABANDONED_S
from gym_runtime.environment import catalogue
from gym_runtime.errors import BrokerError, TaskError, UsageError
from gym_runtime.messages.outcomes import Cancelled, Completed, RolloutRecord, encode_record
from gym_runtime.system.private_broker import Broker
from gym_testing.background import Mailbox, background, settled
from gym_testing.small_system import (
    Hang,
)
from runtime.client.clients import left_early
from runtime.client.running_client import NAME, NOTHING, rows, running_client
from tables import table

pytestmark = pytest.mark.anyio


async def open_run(gym: Client, run: str, total: int) -> RunInfo:
    info = RunInfo(run=run, total=total)
    await gym.driver.open_run(info)
    return info


async def collected(gym: Client, run: str) -> list[RolloutRecord]:
    return [record async for record in gym.collect(run)]


@pytest.mark.slow
async def test_several_collectors_each_get_everything_and_several_publishers_do_not_mix() -> None:
    found: Mailbox[tuple[str, list[RolloutRecord]]] = Mailbox()
    async with running_client() as here, here.another() as second, here.another() as third:

        async def collect(gym: Client, run: str) -> None:
            found.put((run, await collected(gym, run)))

        async with anyio.create_task_group() as tasks:
            for gym, run in ((here.gym, "one"), (second, "two")):
                await open_run(gym, run, 30)
                tasks.start_soon(gym.driver.publish, here.tasks(run, 30))
            for gym, run in ((here.gym, "one"), (third, "one"), (second, "two"), (third, "two")):
                tasks.start_soon(collect, gym, run)
    for run, records in found.items:
        assert len(records) == 30
        assert {(record.run, record.task_index) for record in records} == {(run, n) for n in range(30)}
    assert len(found.items) == 4


async def test_a_long_run_is_shed_and_who_comes_late_makes_no_second_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "SHED", 10)
    taken: list[RolloutRecord] = []
    stored: dict[int, int] = {}
    async with running_client() as here:
        bus = here.gym.driver.bus
        await open_run(here.gym, "long", 100)

        async def again(record: RolloutRecord) -> bool:
            return await bus.commit(f"rollout.{record.rollout_id}", encode_record(record))

        async def publish() -> None:
            tasks = here.tasks("long", 100)
            for done in range(5, 101, 5):
                await here.gym.driver.publish(tasks[done - 5 : done])
                await settled(lambda done=done: len(taken) == done)
                stored[done] = len(await bus.counts("rollout.long.>"))
                assert not await again(taken[-1])
                assert done != 60 or await again(taken[0])

        async with anyio.create_task_group() as group:
            group.start_soon(publish)
            long = Run(here.gym.driver, RunInfo(run="long", total=100), taken.append, total=100)
            assert await long.follow(shed=True)
        assert not await again(taken[-1])
    assert sorted(record.task_index for record in taken) == list(range(100))
    assert stored[15] == 15
    assert max(stored.values()) <= 26


@pytest.mark.slow
async def test_a_finished_run_is_kept_until_the_last_client_that_follows_it_has_it() -> None:
    async with running_client() as here, here.another() as slow:
        info = await open_run(here.gym, "one", 600)
        taken = slow.collect("one")
        await here.gym.driver.publish(here.tasks("one", 600))
        slowly = [await anext(taken)]
        assert len(await collected(here.gym, "one")) == 600
        await here.gym.driver.finish_run(info)
        async for record in taken:
            if len(slowly) < 3:
                await anyio.sleep(60)
            slowly.append(record)
        assert len({record.task_index for record in slowly}) == 600
        assert await here.gym.driver.bus.counts("rollout.>") == {}
        assert (await here.gym.run("one")).closed


async def test_a_finished_run_whose_records_are_gone_says_so() -> None:
    async with running_client() as here:
        records = [record async for record in here.rollouts(3)]
        name = records[0].run
        with anyio.fail_after(60), pytest.raises(UsageError, match=f"run '{name}' is finished"):
            await collected(here.gym, name)
        await open_run(here.gym, "two", 3)
        await here.gym.cancel("two")
        with anyio.fail_after(60), pytest.raises(UsageError, match="run 'two' is cancelled, and its records"):
            await collected(here.gym, "two")


@pytest.mark.slow
async def test_leaving_a_collection_early_leaves_the_run_alone() -> None:
    async with running_client() as here:
        await open_run(here.gym, "one", 600)
        await here.gym.driver.publish(here.tasks("one", 600))
        await left_early(here, here.gym.collect("one"), after=3)
        assert len(await collected(here.gym, "one")) == 600
        assert (await here.gym.run("one")).state == "active"


async def test_cancelling_a_run_ends_what_runs_drops_what_waits_and_ends_who_collects() -> None:
    async with running_client(Hang(), slots=4) as here:
        found: Mailbox[list[RolloutRecord]] = Mailbox()
        await open_run(here.gym, "one", 10)
        await here.gym.driver.publish(here.tasks("one", 10))

        async def collect() -> None:
            found.put(await collected(here.gym, "one"))

        async with background(collect):
            await here.engine.calls.until(4)
            await here.gym.cancel("one")
            (records,) = await found.until(1)
        assert [record.outcome for record in records] == [Cancelled()] * 4
        assert (await here.gym.run("one")).state == "cancelled"
        await here.at_rest()


@pytest.mark.parametrize(("parts", "cancelled"), [((3,), {(3, 0)}), ((4, 0), {(4, 0)})])
async def test_cancelling_a_group_or_a_rollout_leaves_the_others(
    parts: tuple[int, ...], cancelled: set[tuple[int, int]]
) -> None:
    async with running_client(Hang(), slots=2) as here:
        await open_run(here.gym, "one", 5)
        tasks = [msgspec.structs.replace(task, timeout_s=100) for task in here.tasks("one", 5)]
        await here.gym.driver.publish(tasks)
        await here.engine.calls.until(2)
        await here.gym.cancel("one", *parts)
        records = await collected(here.gym, "one")
    ended = {(record.task_index, record.rollout_index) for record in records if record.outcome == Cancelled()}
    assert (ended, len(records)) == (cancelled, 5)


async def test_a_run_that_is_not_there_is_refused_with_the_nearest() -> None:
    async with running_client() as here:
        await open_run(here.gym, "20260101-120000-abcdef", 1)
        wrong = "20260101-120000-abcdee"
        message = "there is no run '20260101-120000-abcdee'; did you mean '20260101-120000-abcdef'"
        for look in (here.gym.run(wrong), here.gym.cancel(wrong), collected(here.gym, wrong)):
            with pytest.raises(UsageError, match=message):
                await look


async def test_a_rollout_without_its_task_is_refused_rather_than_taken_for_a_task() -> None:
    async with running_client() as here:
        await open_run(here.gym, "one", 1)
        with pytest.raises(UsageError, match="which task"):
            await here.gym.cancel("one", rollout_index=1)


async def test_status_shows_workers_queues_and_runs() -> None:
    async with running_client(Hang(), slots=2) as here:
        info = RunInfo(run="one", total=5, agents=["tool_loop"])
        await here.gym.driver.open_run(info)
        await here.gym.driver.publish(here.tasks("one", 5))
        await here.engine.calls.until(2)
        status = await here.gym.status()
        assert {(worker.kind, worker.worker) for worker in status.workers} == {
            ("agent", "agent-1"),
            ("resource", "resource-1"),
            ("model", "model-1"),
        }
        assert status.queues == {"tool_loop": QueueDepth(waiting=3, in_flight=2)}
        assert status.runs == [info]
        await here.gym.cancel("one")


def test_run_ids_are_unique_tokens_in_the_order_of_their_making() -> None:
    made = [new_run_id() for _ in range(50)]
    assert len(set(made)) == 50
    assert all("." not in run and " " not in run for run in made)


def test_pools_are_what_the_environments_need() -> None:
    agent, resource, model = make_pools([NAME, "mcqa"], "scripted/echo", workers=3, concurrency=100)
    assert (agent.kind, agent.processes, agent.capacity) == ("agent", 3, 34)
    assert set(agent.names) == {catalogue.environment(name).definition.agent for name in (NAME, "mcqa")}
    assert (resource.names, resource.processes) == ((NAME, "mcqa"), 3)
    assert (model.names, model.model and model.model.provider) == (("policy",), "scripted")


REAL = pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])


async def test_keywords_say_how_to_sample() -> None:
    async with running_client() as here:
        sampling: Any = {
            "temperature": 0.5,
            "top_k": 5,
            "seed": 7,
            "stop": ["END"],
            "reasoning_effort": "low",
        }
        records = [one async for one in here.rollouts(1, **sampling, system_prompt="Be brief.")]
        assert [record.outcome for record in records] == [Completed()]
        params = msgspec.json.decode(here.engine.calls.items[0][0].params)
    assert (params["temperature"], params["reasoning"]) == (0.5, {"effort": "low"})
    assert params["instructions"] == "Be brief."
    assert msgspec.json.decode(params["metadata"]["extra_body"]) == {"top_k": 5, "seed": 7, "stop": ["END"]}


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"top_q": 5}, "no setting 'top_q'; did you mean 'top_"),
        ({"min_p": 3}, "'min_p': expected float <= 1"),
        ({"extra_body": {"n": 2}}, "'n' cannot be set in extra_body"),
    ],
)
async def test_what_cannot_be_sampled_is_said_before_the_first_call(sampling: Any, message: str) -> None:
    async with running_client() as here:
        with pytest.raises(UsageError, match=message):
            await anext(here.rollouts(1, **sampling))
        with pytest.raises(UsageError, match=message):
            await anext(here.gym.groups(rows(1), environment=NAME, repeats=2, **sampling))
        assert not here.engine.calls.items


@REAL
@table(
    ("options", "message"),
    [
        ({}, "say which system"),
        ({"environments": ["mcqa"]}, "say which model"),
        ({"environments": ["mcqua"], "model": "scripted/echo"}, "did you mean 'mcqa'"),
        ({"environments": "mcqa", "model": "a/b", "workers": 0}, "workers is 0; it must be a whole number"),
        ({"environments": "mcqa", "model": "a/b", "concurrency": "x"}, "concurrency is 'x'; it must be a wh"),
        ({"environments": "mcqa", "model": "a/b", "roles": "judge"}, "roles={'judge': 'PROVIDER/NAME'}"),
        ({"environments": "mcqa", "model": "a/b", "roles": {"judge": 3}}, "judge is 3; it must be 'PROV"),
        ({"environments": "mcqa", "model": 3}, "model is 3; it must be 'PROVIDER/NAME'"),
    ],
)
async def test_connecting_to_nothing_says_what_is_missing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        async with connect(**options):
            pass


@REAL
@pytest.mark.slow
async def test_connect_starts_a_system_whose_errors_come_as_they_are() -> None:
    async def work() -> None:
        async with connect(model="scripted/tool-then-message", environments=[NAME]) as gym:
            records = [record async for record in gym.rollouts(rows(20), environment=NAME)]
            assert [record.outcome for record in records] == [Completed()] * 20
            choice = dict[str, Any](responses_create_params={"input": "?"}, expected_answer="A", options=[])
            with pytest.raises(UsageError, match="workers have no environment 'mcqa'; there are: example_se"):
                await gym.check([choice], environment="mcqa")
            with pytest.raises(UsageError, match="workers have no environment 'mcqa'"):
                await gym.verify(choice, "A", environment="mcqa")
            with pytest.raises(UsageError, match="workers have no agent 'nope'; there are: tool_loop"):
                await gym.publish(rows(1), environment=NAME, agent="nope")
            async with aclosing(gym.rollouts([{}], environment=NAME)) as broken:
                await anext(broken)

    with pytest.raises(TaskError, match="row 1"):
        await work()


@REAL
async def test_opening_a_client_twice_is_refused_and_leaves_it_open(broker: Broker) -> None:
    async with connect(broker.url) as gym:
        for again in (gym.__aenter__, gym.open):
            with pytest.raises(UsageError, match="the client is open already"):
                await again()
            gc.collect()  # what was open before must not be garbage
            assert await gym.workers() == []
    async with gym:
        assert await gym.workers() == []


@REAL
@pytest.mark.slow
async def test_leaving_early_on_a_real_broker_leaves_nothing_running() -> None:
    async with connect(model="scripted/tool-then-message", environments=[NAME]) as gym:
        async for _ in gym.rollouts(rows(3000), environment=NAME):
            break
        with anyio.fail_after(15):
            while True:
                status = await gym.status()
                idle = all(worker.in_use == 0 for worker in status.workers)
                states = [run.state for run in status.runs]
                if idle and status.queues["tool_loop"] == NOTHING and states == ["cancelled"]:
                    break
                await anyio.sleep(0.05)
        assert len([record async for record in gym.rollouts(rows(3), environment=NAME)]) == 3


async def test_a_run_whose_publishing_fails_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_client(Hang()) as here:
        bus = here.gym.driver.bus
        enqueue, left = bus.enqueue, [3]

        async def full(*arguments: Any, **keywords: Any) -> None:
            if not left[0]:
                raise BrokerError("the broker's disk is full")
            left[0] -= 1
            await enqueue(*arguments, **keywords)

        with monkeypatch.context() as patched:
            patched.setattr(bus, "enqueue", full)
            with pytest.raises(BrokerError, match="disk is full"):
                await here.gym.publish(rows(10), environment=NAME)
        (info,) = await here.gym.runs()
        assert info.state == "cancelled"
        await here.at_rest()


async def test_a_part_of_a_run_is_cancelled_however_long_the_link_is_slow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_client(Hang()) as here, here.another() as away:
        line: Any = away.driver.bus

        async def cut(*_: Any, **__: Any) -> None:
            line.cut()
            raise BrokerError("the broker's disk is full")

        async def mend_later() -> None:
            await anyio.sleep(20)
            line.mend()

        monkeypatch.setattr(line, "enqueue", cut)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mend_later)
            with pytest.raises(BrokerError, match="disk is full"):
                await away.publish(rows(10), environment=NAME)
        (info,) = await here.gym.runs()
        assert info.state == "cancelled"
        with pytest.raises(BrokerError, match="disk is full"):
            await away.publish(rows(10), environment=NAME)
        assert f"gym-runtime cancel {(await here.gym.runs())[-1].run}" in capsys.readouterr().err
        line.mend()


async def test_a_day_old_run_whose_client_is_away_for_a_moment_goes_on() -> None:
    async with running_client() as here, here.another() as away:
        line: Any = away.driver.bus
        async with away.standing_run(environment=NAME) as run:
            info = await here.gym.run(run.run)
            old = msgspec.structs.replace(info, created_s=info.created_s - 2 * ABANDONED_S)
            await here.gym.driver.open_run(old)
            line.cut()
            await anyio.sleep(2.5)
            assert len([one async for one in here.rollouts(1)]) == 1  # it looks for abandoned runs
            await anyio.sleep(10)
            line.mend()
            await anyio.sleep(5)
            assert (await here.gym.run(run.run)).state == "active"
            assert (await run.rollout(rows(1)[0])).reward == 1.0
