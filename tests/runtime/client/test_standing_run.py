"""A run that takes rows one by one."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from gym_runtime.errors import GymError, ModelRefused, TaskError, UsageError
from gym_runtime.messages.outcomes import Failed, RolloutRecord
from gym_runtime.training import TreePlan
from gym_testing.background import background, settled
from gym_testing.small_system import Hang, answer
from runtime.client.running_client import CALL, NAME, rows, running_client

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_rows_one_by_one_are_one_run() -> None:
    async with running_client() as here:
        async with here.gym.standing_run(environment=NAME, temperature=0.5) as run:
            records = [await run.rollout(row) for row in [*rows(3), rows(1)[0]]]
            assert [(record.run, record.task_index, record.reward) for record in records] == [
                (run.run, index, 1.0) for index in range(4)
            ]
            (info,) = await here.gym.runs()
            assert (info.run, info.state) == (run.run, "active")
        (info,) = await here.gym.runs()
        assert (info.state, info.total, info.done) == ("finished", 4, 4)
        await here.at_rest()


async def test_many_at_once() -> None:
    found: list[RolloutRecord] = []
    async with running_client() as here, here.gym.standing_run(environment=NAME) as run:

        async def one(row: dict[str, Any]) -> None:
            record = await run.rollout(row)
            assert record.numbers["n"] == row["n"]
            found.append(record)

        async with anyio.create_task_group() as tasks:
            for row in rows(50):
                tasks.start_soon(one, row)
    assert len({record.rollout_id for record in found}) == 50


async def test_a_failed_rollout_is_a_record_and_a_wrong_row_an_error() -> None:
    bad_key = ModelRefused("bad key")
    async with running_client(bad_key) as here, here.gym.standing_run(environment=NAME) as run:
        record = await run.rollout(rows(1)[0])
        assert isinstance(record.outcome, Failed)
        with pytest.raises(TaskError, match="initial_count"):
            await run.rollout({"responses_create_params": {"input": "go"}})
        with pytest.raises(UsageError, match="did you mean 'temperature'"):
            await run.rollout(rows(1)[0], temprature=1)
        assert isinstance((await run.rollout(rows(1)[0])).outcome, Failed)


async def test_being_cancelled_cancels_the_rollout_alone() -> None:
    async with running_client(answer(CALL), Hang()) as here:
        async with here.gym.standing_run(environment=NAME) as run:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run.rollout, rows(1)[0])
                    await here.engine.calls.until(2)
                    scope.cancel()
            await here.engine.cancelled.until(1)
            assert run.pending == 0
        await here.at_rest()


async def test_the_end_of_the_context_cancels_what_is_in_progress() -> None:
    async with running_client(answer(CALL), Hang()) as here:
        async with anyio.create_task_group() as tasks, here.gym.standing_run(environment=NAME) as run:

            async def waits() -> None:
                with pytest.raises(GymError, match="it was closed"):
                    await run.rollout(rows(1)[0])

            tasks.start_soon(waits)
            await here.engine.calls.until(2)
        assert [info.state for info in await here.gym.runs()] == ["cancelled"]
        await here.at_rest()


async def test_a_run_that_somebody_cancels_ends_its_waiting() -> None:
    hanging = running_client(answer(CALL), Hang())
    async with hanging as here, here.gym.standing_run(environment=NAME) as run:

        async def cancel() -> None:
            await here.engine.calls.until(2)
            await here.gym.cancel(run.run)

        async with background(cancel):
            record = await run.rollout(rows(1)[0])
        assert record.reward is None
        await settled(lambda: run.over)
        with pytest.raises(GymError, match="is over"):
            await run.rollout(rows(1)[0])


async def test_a_loop_over_a_run_that_somebody_cancels_has_an_end() -> None:
    """Its rollouts would be cancelled one by one, and each record would keep the run waiting for more."""
    async with running_client() as here, here.gym.standing_run(environment=NAME) as run:
        await here.gym.cancel(run.run)
        with anyio.fail_after(60), pytest.raises(GymError, match="is over: it was cancelled"):
            while True:
                await run.rollout(rows(1)[0])
        await here.at_rest()


async def test_seeds_of_repeats_are_refused() -> None:
    """All rollouts would have one seed, and so could be one answer."""
    async with running_client() as here:
        with pytest.raises(UsageError, match="one seed"):
            async with here.gym.standing_run(environment=NAME, seed_repeats=True):
                raise AssertionError
        with pytest.raises(UsageError, match="forks of a tree"):
            async for _ in here.gym.groups(rows(1), environment=NAME, tree=TreePlan(), seed_repeats=True):
                raise AssertionError
        with pytest.raises(UsageError, match="all forks of a tree would have the same seed"):
            async for _ in here.gym.groups(rows(1), environment=NAME, tree=TreePlan(), seed=7):
                raise AssertionError


async def test_repeats_are_refused() -> None:
    async with running_client() as here:
        with pytest.raises(UsageError, match="makes one rollout for each row"):
            async with here.gym.standing_run(environment=NAME, repeats=2):
                pass
