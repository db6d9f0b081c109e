"""Rows in, records out; leaving early."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any
from weakref import ref

import anyio
import msgspec
import numpy as np
import pytest
from gym_runtime.client import runs
from gym_runtime.errors import BrokerError, ModelRefused, TaskError, UsageError
from gym_runtime.messages.outcomes import Failed
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_testing.background import background, settled
from gym_testing.memory import Fate, Passing
from gym_testing.small_system import (
    Hang,
    answer,
)
from runtime.client.clients import left_early
from runtime.client.running_client import CALL, NAME, rows, running_client
from tables import table

pytestmark = pytest.mark.anyio


async def test_one_row_where_a_list_is_due_is_refused() -> None:
    async with running_client() as here:
        for row in (rows(1)[0], '{"responses_create_params": {}}', None):
            with pytest.raises(UsageError, match=r"must be rows in a list.*of a file: .*open_dataset\("):
                here.gym.rollouts(row, environment=NAME)  # pyright: ignore[reportArgumentType]
        with pytest.raises(UsageError, match="in_flight is 0; it must be a whole number of at least 1"):
            here.gym.rollouts(rows(1), environment=NAME, in_flight=0)


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
        assert await here.gym.driver.bus.counts("rollout.>") == {}
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


@table(
    ("given", "environment", "sampling", "error", "message"),
    [
        ([*rows(2), {"responses_create_params": {"input": "go"}}], NAME, {}, TaskError, "row 3"),
        ([b"{"], NAME, {}, TaskError, "row 1"),
        (rows(1), "example_sesion_state_mgmt", {}, UsageError, "did you mean 'example_session_state_mgmt'"),
        (rows(1), None, {}, TaskError, "agent_ref"),
        (rows(1), NAME, {"temprature": 1}, UsageError, "did you mean 'temperature'"),
        (rows(1), NAME, {"repeat": 2}, UsageError, "no setting 'repeat'; did you mean 'repeats'"),
        (rows(1), NAME, {"in_fligt": 2}, UsageError, "no setting 'in_fligt'; did you mean 'in_flight'"),
        (rows(1), NAME, {"keys": [1]}, UsageError, "no setting 'keys'; there are the fields of"),
        (rows(1), NAME, {"agent": "nope"}, UsageError, "no agent 'nope'; there are: tool_loop; name you"),
        (rows(1), NAME, {"settings": {"repeats": "x"}}, UsageError, "settings must be RolloutSettings"),
        (rows(1), NAME, {"sampling": "x"}, UsageError, "sampling is 'x'; it must be a mapping"),
        ([*rows(1), {"a": object()}], NAME, {}, TaskError, "row 2 is no JSON.*type object"),
        ([rows(2)], NAME, {}, TaskError, "row 1: expected object, got array"),
        (rows(1), NAME, {"repeats": {"mcqs": 2}}, UsageError, "no environment 'mcqs'; did you mean 'mcqa'"),
        (rows(1), NAME, {"repeats": np.int64(2)}, UsageError, "repeats is .*2.*; give it as a plain number"),
        (["\ud800"], NAME, {}, TaskError, "row 1 is no JSON"),
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


async def test_a_stream_of_rows_is_forgotten_as_it_is_read() -> None:
    class Row(dict[str, Any]):
        """A dictionary that weak references may point to."""

    read = list[ref[Row]]()
    kept = list[int]()

    def stream() -> Iterator[Row]:
        for fields in rows(40):
            row = Row(fields)
            read.append(ref(row))
            kept.append(sum(one() is not None for one in read))
            yield row

    async with running_client() as here:
        made = [record async for record in here.gym.rollouts(stream(), environment=NAME, in_flight=4)]
    assert len(made) == 40
    assert max(kept) <= 3


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


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_slow_reader_of_groups_gets_none_that_is_long_over(ordered: bool) -> None:
    """Weights change between two reads, and a group that waited for many of them would be of old ones."""
    most = read = 0
    async with running_client() as here:
        given = iter(rows(30))
        made = here.gym.groups(given, environment=NAME, repeats=4, in_flight=8, ordered=ordered)
        async with aclosing(made) as groups:
            async for group in groups:
                assert len(group.rollouts) == 4
                read += 4
                await anyio.sleep(1)
                begun = len({context.rollout for _, context in here.engine.calls.items})
                most = max(most, begun - read)
    assert read == 120
    assert 1 <= most <= 8 + 4  # the places of a whole group may be taken before it takes them again


async def test_groups_in_order_that_wait_for_a_row_at_the_end_take_no_places() -> None:
    async with running_client() as here:
        given = [*rows(6), rows(1)[0]]
        found = [
            (group.task_index, len(group.rollouts))
            async for group in here.gym.groups(given, environment=NAME, repeats=3, in_flight=2, ordered=True)
        ]
    assert found == [(0, 6), *((number, 3) for number in range(1, 6))]


@pytest.mark.slow
async def test_a_slow_reader_loses_nothing() -> None:
    async with running_client() as here:
        seen: set[str] = set()
        async for record in here.rollouts(700):
            if len(seen) < 5:
                await anyio.sleep(30)
            seen.add(record.rollout_id)
    assert len(seen) == 700


@pytest.mark.slow
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


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_stream_without_an_end_ends_when_somebody_cancels_its_run(grouped: bool) -> None:
    async with running_client() as here:
        call = here.gym.groups if grouped else here.gym.rollouts
        read = 0
        with anyio.fail_after(60):
            async for _ in call(itertools.cycle(rows(4)), environment=NAME, in_flight=16):
                read += 1
                if read == 20:
                    (run,) = await here.gym.runs()
                    await here.gym.cancel(run.run)
        assert read >= 20
        (run,) = await here.gym.runs()
        assert run.state == "cancelled"
        await here.at_rest()


async def test_leaving_early_reaches_what_is_in_the_middle_of_a_call() -> None:
    async with running_client(answer(CALL), Hang()) as here:
        records = here.rollouts(20)
        async with background(lambda: left_early(here, records, after=1)):
            await here.engine.calls.until(40)
        await here.engine.cancelled.until(20)
        await here.at_rest()


@pytest.mark.slow
async def test_leaving_early_without_a_word_is_leaving_early() -> None:
    async with running_client() as here:
        async for _ in here.rollouts(500):
            break
        await here.at_rest()
        await settled(lambda: len(here.engine.calls.items) < 1000)
        assert [run.state for run in await here.gym.runs()] == ["cancelled"]


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_leaving_early_with_more_records_waiting_than_fit_harms_no_other_run() -> None:
    async with running_client() as here:
        records = here.rollouts(1000)
        await anext(records)
        # Everything that fits is there, and the work waits for its reader.
        await anyio.sleep(60)
        await records.aclose()
        assert len([record async for record in here.rollouts(3)]) == 3
        await here.at_rest()


@table("turns", range(12))
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


async def test_a_reader_that_never_waits_is_cancelled_between_two_records() -> None:
    """As by the interrupt of a cell that computes with each record, while others wait in memory."""
    seen = 0
    async with running_client() as here:
        with anyio.CancelScope() as scope:
            async with aclosing(here.rollouts(100)) as records:
                async for _ in records:
                    seen += 1
                    if seen == 1:
                        await anyio.sleep(1)
                    elif seen == 10:
                        scope.cancel()
        assert seen == 10
        await here.at_rest()


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


async def test_what_comes_after_a_runs_end_is_looked_for_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_client() as here:
        bus = here.gym.driver.bus
        for _ in range(2):
            run = [record.run async for record in here.rollouts(1)][0]
            assert await bus.commit(f"rollout.{run}.9.0", b"{}")  # by a worker that was frozen
        assert len(await bus.counts("rollout.>")) == 2
        monkeypatch.setattr(runs, "TIDIED_S", 0.0)
        assert [record async for record in here.rollouts(1)]
        with anyio.fail_after(15):
            while await bus.counts("rollout.>"):
                await anyio.sleep(0.01)
