"""The client: runs from rows to records, several at once, left early, cancelled, collected elsewhere."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import connect
from gym_runtime.bus.interface import QueueDepth
from gym_runtime.client import Client, RunInfo, following, make_pools, new_run_id
from gym_runtime.environment import catalogue
from gym_runtime.errors import BrokerError, ModelRefused, TaskError, UsageError
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, RolloutRecord, encode_record
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.testing.background import Mailbox, background, settled
from gym_runtime.testing.memory import Fate, Passing
from gym_runtime.testing.small_system import (
    Hang,
    answer,
)
from gym_runtime.testing.virtual_clock import BACKEND
from gym_runtime.workers.adapter import ModelSettings
from runtime.client.running_client import CALL, NAME, NOTHING, RunningClient, rows, running_client

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


async def test_one_row_where_a_list_is_due_is_refused() -> None:
    async with running_client() as here:
        for row in (rows(1)[0], '{"responses_create_params": {}}'):
            with pytest.raises(UsageError, match="where a list of rows is due"):
                here.gym.rollouts(row, environment=NAME)  # pyright: ignore[reportArgumentType]


# -- rows in, records out -----------------------------------------------------------------------------


async def test_every_rollout_comes_once_and_the_run_is_over_then() -> None:
    async with running_client() as here:
        records = [record async for record in here.rollouts(5, repeats=4)]
        assert len({record.rollout_id for record in records}) == 20
        assert {(record.task_index, record.rollout_index) for record in records} == {
            (task, rollout) for task in range(5) for rollout in range(4)
        }
        assert all(record.reward == 1.0 for record in records)
        (run,) = await here.gym.runs()
        assert (run.state, run.total, run.environments, run.agents) == ("finished", 20, [NAME], ["tool_loop"])
        assert await here.gym.bus.counts("rollout.>") == {}
        await here.at_rest()


async def test_rows_may_be_mappings_text_or_bytes_and_sampling_is_laid_over_them() -> None:
    async with running_client() as here:
        (mapping,) = rows(1)
        given = [mapping | {"n": 1}, msgspec.json.encode(mapping | {"n": 2}), '{"n": 3,' + text_of(mapping)]
        records = [
            record async for record in here.gym.rollouts(given, environment=NAME, temperature=0.25, top_p=0.5)
        ]
        assert sorted(record.numbers["n"] for record in records) == [1, 2, 3]
        params = msgspec.json.decode(here.engine.calls.items[0][0].params)
        assert (params["temperature"], params["top_p"]) == (0.25, 0.5)


def text_of(row: dict[str, Any]) -> str:
    return msgspec.json.encode({name: value for name, value in row.items() if name != "n"}).decode()[1:]


async def test_no_rows_are_no_rollouts() -> None:
    async with running_client() as here:
        assert [record async for record in here.gym.rollouts([], environment=NAME)] == []
        assert [run.state for run in await here.gym.runs()] == ["finished"]


async def test_failed_rollouts_come_too() -> None:
    async with running_client(ModelRefused("bad key")) as here:
        records = [record async for record in here.rollouts(3)]
    assert [(type(record.outcome), record.reward) for record in records] == [(Failed, None)] * 3


@pytest.mark.parametrize(
    ("given", "environment", "sampling", "error", "message"),
    [
        ([*rows(2), {"responses_create_params": {"input": "go"}}], NAME, {}, TaskError, "row 3"),
        ([b"{"], NAME, {}, TaskError, "row 1"),
        (rows(1), "example_sesion_state_mgmt", {}, UsageError, "did you mean 'example_session_state_mgmt'"),
        (rows(1), None, {}, TaskError, "agent_ref"),
        (rows(1), NAME, {"temprature": 1}, UsageError, "did you mean 'temperature'"),
    ],
)
async def test_a_wrong_row_or_name_is_refused_before_anything_starts(
    given: list[Any], environment: str | None, sampling: dict[str, Any], error: type[Exception], message: str
) -> None:
    async with running_client() as here:
        with pytest.raises(error, match=message):
            await anext(here.gym.rollouts(given, environment=environment, **sampling))
        assert await here.gym.runs() == []
        assert not here.engine.calls.items


async def test_a_stream_of_rows_is_read_as_places_become_free() -> None:
    taken = 0

    def stream() -> Iterator[dict[str, Any]]:
        nonlocal taken
        for row in rows(40):
            taken += 1
            yield row

    async with running_client() as here:
        read = 0
        async for _ in here.gym.rollouts(stream(), environment=NAME, in_flight=5):
            read += 1
            assert taken <= read + 6
        assert (read, taken) == (40, 40)
        (run,) = await here.gym.runs()
        assert (run.state, run.total) == ("finished", 40)


async def test_a_wrong_row_in_a_stream_ends_the_run_where_it_stands() -> None:
    async with running_client() as here:
        with pytest.raises(TaskError, match="row 3"):
            async for _ in here.gym.rollouts(iter([*rows(2), {"oops": 1}]), environment=NAME):
                pass
        assert [run.state for run in await here.gym.runs()] == ["cancelled"]
        await here.at_rest()


async def test_settings_are_one_object_and_keywords_change_it() -> None:
    settings = RolloutSettings(repeats=3, sampling={"temperature": 0.5, "top_p": 0.9})
    async with running_client() as here:
        made = here.gym.rollouts(rows(1), settings, environment=NAME, repeats=2, temperature=0.25)
        assert len([record async for record in made]) == 2
        params = msgspec.json.decode(here.engine.calls.items[0][0].params)
        assert (params["temperature"], params["top_p"]) == (0.25, 0.9)


async def test_no_more_are_on_their_way_than_asked_for() -> None:
    most = 0
    async with running_client() as here, aclosing(here.rollouts(50, in_flight=5)) as records:
        read = 0
        async for _ in records:
            read += 1
            await anyio.sleep(1)
            begun = len({context.rollout for _, context in here.engine.calls.items})
            most = max(most, begun - read)
    assert read == 50
    assert 1 <= most <= 5


@pytest.mark.slow
async def test_a_slow_reader_loses_nothing() -> None:
    async with running_client() as here:
        seen: set[str] = set()
        async for record in here.rollouts(700):
            if len(seen) < 5:
                await anyio.sleep(30)
            seen.add(record.rollout_id)
    assert len(seen) == 700


async def test_several_runs_at_once_on_one_connection_do_not_mix() -> None:
    found: dict[int, set[int]] = {}
    async with running_client() as here, anyio.create_task_group() as tasks:

        async def make(number: int) -> None:
            count = 10 + number
            async for record in here.gym.rollouts(rows(count, number=number), environment=NAME):
                assert record.numbers["number"] == number
                found.setdefault(number, set()).add(record.task_index)

        for number in range(5):
            tasks.start_soon(make, number)
    assert {number: len(indices) for number, indices in found.items()} == {n: 10 + n for n in range(5)}


# -- leaving early ------------------------------------------------------------------------------------


async def left_early(here: RunningClient, records: AsyncGenerator[RolloutRecord], *, after: int) -> None:
    count = 0
    async for _ in records:
        count += 1
        if count == after:
            break
    await records.aclose()


@pytest.mark.parametrize("slots", [64, 2])
async def test_leaving_early_stops_everything(slots: int) -> None:
    async with running_client(slots=slots) as here:
        await left_early(here, here.rollouts(500), after=3)
        await here.at_rest()
        (run,) = await here.gym.runs()
        assert run.state == "cancelled"
        asked = len(here.engine.calls.items)
        await anyio.sleep(100)
        assert len(here.engine.calls.items) == asked < 1000


async def test_leaving_early_reaches_what_is_in_the_middle_of_a_call() -> None:
    async with running_client(answer(CALL), Hang()) as here:
        records = here.rollouts(20)
        async with background(lambda: left_early(here, records, after=1)):
            await here.engine.calls.until(40)
        await here.engine.cancelled.until(20)
        await here.at_rest()


async def test_leaving_early_without_a_word_is_leaving_early() -> None:
    async with running_client() as here:
        async for _ in here.rollouts(500):
            break
        await here.at_rest()
        await settled(lambda: len(here.engine.calls.items) < 1000)
        assert [run.state for run in await here.gym.runs()] == ["cancelled"]


@pytest.mark.slow
async def test_leaving_early_with_more_records_waiting_than_fit_harms_no_other_run() -> None:
    async with running_client() as here:
        records = here.rollouts(1000)
        await anext(records)
        # Everything that fits is there, and the work waits for its reader.
        await anyio.sleep(60)
        await records.aclose()
        assert len([record async for record in here.rollouts(3)]) == 3
        await here.at_rest()


@pytest.mark.parametrize("turns", range(12))
async def test_being_cancelled_at_any_moment_leaves_a_working_connection(turns: int) -> None:
    async with running_client() as here:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel_soon() -> None:
                    for _ in range(turns):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()

                tasks.start_soon(cancel_soon)
                async with aclosing(here.rollouts(100)) as records:
                    async for _ in records:
                        pass
        await here.at_rest()
        assert len([record async for record in here.rollouts(3)]) == 3


async def test_what_breaks_is_raised_where_the_records_are_read_and_ends_no_other_run() -> None:
    class Refusing:
        """The broker stores no task of the environment while this is set."""

        on = False

        def fate(self, passing: Passing, dice: random.Random) -> Fate:
            return Fate(drop=self.on and passing.kind == "store" and passing.subject.startswith("task."))

    faults = Refusing()
    async with running_client(faults=faults) as here:
        faults.on = True
        with pytest.raises(BrokerError):
            async for _ in here.rollouts(5):
                pass
        faults.on = False
        assert len([record async for record in here.rollouts(3)]) == 3


# -- published here, collected there --------------------------------------------------------------------


async def open_run(gym: Client, run: str, total: int) -> RunInfo:
    info = RunInfo(run=run, total=total)
    await gym.open_run(info)
    return info


async def collected(gym: Client, run: str) -> list[RolloutRecord]:
    return [record async for record in gym.collect(run)]


async def test_several_collectors_each_get_everything_and_several_publishers_do_not_mix() -> None:
    found: Mailbox[tuple[str, list[RolloutRecord]]] = Mailbox()
    async with running_client() as here, here.another() as second, here.another() as third:

        async def collect(gym: Client, run: str) -> None:
            found.put((run, await collected(gym, run)))

        async with anyio.create_task_group() as tasks:
            for gym, run in ((here.gym, "one"), (second, "two")):
                await open_run(gym, run, 30)
                tasks.start_soon(gym.publish, here.tasks(run, 30))
            for gym, run in ((here.gym, "one"), (third, "one"), (second, "two"), (third, "two")):
                tasks.start_soon(collect, gym, run)
    for run, records in found.items:
        assert len(records) == 30
        assert {(record.run, record.task_index) for record in records} == {(run, n) for n in range(30)}
    assert len(found.items) == 4


async def test_a_long_run_is_shed_and_who_comes_late_makes_no_second_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "SHED", 10)
    taken: list[RolloutRecord] = []
    stored: dict[int, int] = {}
    async with running_client() as here:
        bus = here.gym.bus
        await open_run(here.gym, "long", 100)

        async def again(record: RolloutRecord) -> bool:
            return await bus.commit(f"rollout.{record.rollout_id}", encode_record(record))

        async def publish() -> None:
            tasks = here.tasks("long", 100)
            for done in range(5, 101, 5):
                await here.gym.publish(tasks[done - 5 : done])
                await settled(lambda done=done: len(taken) == done)
                stored[done] = len(await bus.counts("rollout.long.>"))
                assert not await again(taken[-1])
                assert done != 60 or await again(taken[0])

        async with anyio.create_task_group() as group:
            group.start_soon(publish)
            assert await here.gym.follow("long", 100, taken.append, shed=True)
        assert not await again(taken[-1])
    assert sorted(record.task_index for record in taken) == list(range(100))
    assert stored[15] == 15
    assert max(stored.values()) <= 26


@pytest.mark.slow
async def test_a_finished_run_is_kept_until_the_last_client_that_follows_it_has_it() -> None:
    async with running_client() as here, here.another() as slow:
        info = await open_run(here.gym, "one", 600)
        taken = slow.collect("one")
        await here.gym.publish(here.tasks("one", 600))
        slowly = [await anext(taken)]
        assert len(await collected(here.gym, "one")) == 600
        await here.gym.finish_run(info)
        async for record in taken:
            if len(slowly) < 3:
                await anyio.sleep(60)
            slowly.append(record)
        assert len({record.task_index for record in slowly}) == 600
        assert await here.gym.bus.counts("rollout.>") == {}
        assert (await here.gym.run("one")).closed


async def test_a_finished_run_whose_records_are_gone_says_so() -> None:
    async with running_client() as here:
        records = [record async for record in here.rollouts(3)]
        run = records[0].run
        with anyio.fail_after(60), pytest.raises(UsageError, match=f"run '{run}' is finished"):
            await collected(here.gym, run)
        await open_run(here.gym, "two", 3)
        await here.gym.cancel("two")
        with anyio.fail_after(60), pytest.raises(UsageError, match="run 'two' is cancelled, and its records"):
            await collected(here.gym, "two")


@pytest.mark.slow
async def test_leaving_a_collection_early_leaves_the_run_alone() -> None:
    async with running_client() as here:
        await open_run(here.gym, "one", 600)
        await here.gym.publish(here.tasks("one", 600))
        await left_early(here, here.gym.collect("one"), after=3)
        assert len(await collected(here.gym, "one")) == 600
        assert (await here.gym.run("one")).state == "active"


# -- cancelling ---------------------------------------------------------------------------------------


async def test_cancelling_a_run_ends_what_runs_drops_what_waits_and_ends_who_collects() -> None:
    async with running_client(Hang(), slots=4) as here:
        found: Mailbox[list[RolloutRecord]] = Mailbox()
        await open_run(here.gym, "one", 10)
        await here.gym.publish(here.tasks("one", 10))

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
        await here.gym.publish(tasks)
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


# -- looking around -----------------------------------------------------------------------------------


async def test_status_shows_workers_queues_and_runs() -> None:
    async with running_client(Hang(), slots=2) as here:
        info = RunInfo(run="one", total=5, agents=["tool_loop"])
        await here.gym.open_run(info)
        await here.gym.publish(here.tasks("one", 5))
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


# -- a system of one's own ------------------------------------------------------------------------------

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
        ({"top_k": 5}, "openai/gpt-5 has no top_k"),
        ({"top_q": 5}, "no sampling setting 'top_q'; did you mean 'top_"),
        ({"min_p": 3}, "'min_p': expected float <= 1"),
        ({"extra_body": {"n": 2}}, "'n' cannot be set in extra_body"),
    ],
)
async def test_what_cannot_be_sampled_is_said_before_the_first_call(sampling: Any, message: str) -> None:
    async with running_client() as here:
        here.gym.served = ModelSettings.parse("openai/gpt-5")
        with pytest.raises(UsageError, match=message):
            await anext(here.rollouts(1, **sampling))
        with pytest.raises(UsageError, match=message):
            await anext(here.gym.groups(rows(1), environment=NAME, repeats=2, **sampling))
        assert not here.engine.calls.items


@REAL
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "say which system"),
        ({"environments": ["mcqa"]}, "say which model"),
        ({"environments": ["mcqua"], "model": "scripted/echo"}, "did you mean 'mcqa'"),
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
            async with aclosing(gym.rollouts([{}], environment=NAME)) as broken:
                await anext(broken)

    with pytest.raises(TaskError, match="row 1"):
        await work()


@REAL
@pytest.mark.slow
async def test_leaving_early_on_a_real_broker_leaves_nothing_running() -> None:
    async with connect(model="scripted/tool-then-message", environments=[NAME]) as gym:
        async for _ in gym.rollouts(rows(3000), environment=NAME):
            break
        with anyio.fail_after(10):
            while True:
                status = await gym.status()
                idle = all(worker.in_use == 0 for worker in status.workers)
                states = [run.state for run in status.runs]
                if idle and status.queues["tool_loop"] == NOTHING and states == ["cancelled"]:
                    break
                await anyio.sleep(0.05)
        assert len([record async for record in gym.rollouts(rows(3), environment=NAME)]) == 3
