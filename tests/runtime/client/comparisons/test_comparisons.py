"""Verdicts on groups: compared once, counted once, failed alone."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import Verdict
from gym_runtime.errors import ModelRefused, ModelUnavailable, UsageError
from gym_testing.small_system import (
    Engine,
)
from runtime.client.comparisons.compared_groups import YES, Here, about, fault, rewards

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_the_rollouts_of_a_group_get_their_rewards_from_one_comparison(here: Here) -> None:
    await here.start()
    records = await here.rollouts(2)
    assert rewards(records) == {(task, index): index for task in range(2) for index in range(4)}
    assert [record.rollout_index for record in records] == [0, 1, 2, 3] * 2
    assert here.contest.groups == [[0, 1, 2, 3]] * 2
    row = msgspec.json.decode(records[2].row)
    assert list(row)[:3] == ["responses_create_params", "response", "reward"]
    assert (row["reward"], row["of"], row["said"], row["reward_components"]) == (
        2.0,
        4,
        "yes",
        {"place": 1.0},
    )
    assert (row["n"], row["_gym"]["compared"], row["_gym"]["outcome"]) == (
        0,
        [0, 1, 2, 3],
        {"type": "completed"},
    )
    assert records[2].numbers["of"] == 4
    assert records[2].numbers["place"] == 1
    assert records[2].waiting is None
    (run,) = await here.gym.runs()
    assert (run.state, run.total, run.done) == ("finished", 8, 8)
    for kind in ("task", "rollout", "journal"):
        assert await here.gym.driver.bus.counts(f"{kind}.>") == {}


async def test_a_comparison_may_reward_each_seat(here: Here) -> None:
    seats = {"first": 1.0, "second": 0.0}
    here.contest.returned = [Verdict(1.0, rewards=seats)] * 4
    await here.start()
    records = await here.rollouts()
    assert [record.rewards for record in records] == [seats] * 4
    assert [about(record)["rewards"] for record in records] == [seats] * 4


async def test_what_the_judges_of_a_comparison_cost_is_counted_once(here: Here) -> None:
    await here.start()
    records = await here.rollouts()
    assert [record.roles["judge"].calls for record in records if record.roles] == [4]
    assert [len(about(record).get("role_answers", ())) for record in records] == [4, 0, 0, 0]
    assert records[0].numbers["judge_calls"] == 4
    asked = [msgspec.json.decode(call.input[0])["content"] for call, _ in here.judge.calls.items]
    assert asked == [f"task 0: {index}" for index in range(4)]


async def test_a_rollout_that_failed_is_missing_from_its_comparison(here: Here) -> None:
    await here.start(r1=ModelRefused("no"), r2="")
    records = await here.rollouts()
    assert here.contest.groups == [[0, 3]]
    assert rewards(records) == {(0, 0): 0, (0, 1): None, (0, 2): -1, (0, 3): 1}
    assert "compared" not in about(next(record for record in records if record.rollout_index == 2))


@pytest.mark.parametrize("left", [0, 1])
async def test_fewer_than_two_are_not_compared(here: Here, left: int) -> None:
    failing = {f"r{index}": ModelRefused("no") for index in range(4 - left)}
    await here.start(**failing)
    records = await here.rollouts()
    assert here.contest.groups == []
    assert len(records) == 4
    assert all(record.reward is None for record in records)
    alone = [fault(record) for record in records if fault(record).kind != "model"]
    assert [(one.kind, one.stage) for one in alone] == [("resource", "compare")] * left


async def test_a_comparison_may_have_no_verdict_for_one_of_its_rollouts(here: Here) -> None:
    await here.start(r0="odd")
    records = await here.rollouts()
    assert rewards(records) == {(0, 0): None, (0, 1): 0, (0, 2): 1, (0, 3): 2}
    assert (fault(records[0]).message, fault(records[0]).stage) == ("it cannot be ranked", "compare")
    assert [len(about(record).get("role_answers", ())) for record in records] == [0, 4, 0, 0]
    assert about(records[0])["outcome"]["type"] == "failed"
    assert "reward" not in msgspec.json.decode(records[0].row)


async def test_what_a_comparison_without_any_verdict_cost_is_counted_once(here: Here) -> None:
    await here.start(**{f"r{index}": "odd" for index in range(4)})
    records = await here.rollouts()
    assert [record.reward for record in records] == [None] * 4
    assert [record.roles["judge"].calls for record in records if record.roles] == [4]
    assert [len(about(record).get("role_answers", ())) for record in records] == [4, 0, 0, 0]
    assert about(records[0])["roles"]["judge"]["calls"] == records[0].numbers["judge_calls"] == 4


async def test_a_comparison_that_raises_fails_its_rollouts_and_no_others(here: Here) -> None:
    await here.start()
    here.contest.trouble = [ValueError("broken")]
    records = await here.rollouts(2)
    failed = [record for record in records if record.reward is None]
    assert len(records) == 8
    assert len(failed) == 4
    assert len({record.task_index for record in failed}) == 1
    assert {fault(record).stage for record in failed} == {"compare"}
    assert "ValueError: broken" in fault(failed[0]).message


async def test_a_judge_that_fails_for_a_moment_is_asked_again(here: Here) -> None:
    await here.start()
    here.contest.trouble = [ModelUnavailable("503", stage="judge")]
    records = await here.rollouts()
    assert [record.reward for record in records] == [0, 1, 2, 3]
    assert here.contest.groups == [[0, 1, 2, 3]] * 2
    assert {record.attempt for record in records} == {1}


@pytest.mark.slow
async def test_a_comparison_may_take_the_retries_of_all_its_rollouts(here: Here) -> None:
    """Each question fails six times before it is answered: more retries in all than one rollout has."""
    overloaded = ModelUnavailable("503", retry_after_s=0.01)
    here.judge = Engine(*[turn for _ in range(8) for turn in (*[overloaded] * 6, YES)])
    await here.start()
    records = await here.rollouts(repeats=8)
    assert [record.reward for record in records] == list(range(8))
    assert len(here.judge.calls.items) == 8 * 7


async def test_a_judge_that_fails_for_good_is_no_reward(here: Here) -> None:
    here.judge = Engine(ModelRefused("bad key"))
    await here.start()
    records = await here.rollouts()
    assert {(fault(record).kind, fault(record).stage) for record in records} == {("model", "judge")}
    assert not any(record.roles for record in records)


async def test_what_a_judge_cost_before_it_failed_is_counted_once(here: Here) -> None:
    here.judge = Engine(YES, YES, ModelRefused("bad key"))
    await here.start()
    records = await here.rollouts()
    assert [record.reward for record in records] == [None] * 4
    assert [record.roles["judge"].calls for record in records if record.roles] == [2]
    assert about(records[0])["roles"]["judge"]["calls"] == records[0].numbers["judge_calls"] == 2


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([Verdict(1.0)], "1 verdicts for 2 candidates"),
        ("ab", "it must return a list"),
        ([1.0, 2.0], "it must be a Verdict"),
        ([Verdict(1.0), Verdict(float("nan"))], "must be a finite number"),
        ([Verdict(1.0), Verdict(1.0, fields={"x": object()})], "not JSON"),
    ],
)
async def test_what_a_comparison_may_not_return_is_a_failure(here: Here, returned: Any, said: str) -> None:
    await here.start()
    here.contest.returned = returned
    records = await here.rollouts(repeats=2)
    assert all(said in fault(record).message and fault(record).stage == "compare" for record in records)


async def test_one_rollout_per_row_is_refused(here: Here) -> None:
    with pytest.raises(UsageError, match="repeats must be at least 2"):
        await here.rollouts(repeats=1)


async def test_a_row_that_occurs_again_joins_its_group(here: Here) -> None:
    await here.start()
    made = here.gym.rollouts([*here.rows(), *here.rows()], environment="contest")
    assert [record.reward async for record in made] == [0, 1]


async def test_a_window_smaller_than_a_group_is_wide_enough(here: Here) -> None:
    await here.start()
    records = await here.rollouts(3, repeats=8, in_flight=2)
    assert len(rewards(records)) == 24
    assert all(record.reward is not None for record in records)


@pytest.mark.slow
async def test_no_more_rollouts_are_begun_while_comparisons_take_long(here: Here) -> None:
    await here.start()
    here.contest.release = anyio.Event()
    async with aclosing(
        here.gym.rollouts(here.rows(50), environment="contest", repeats=4, in_flight=8)
    ) as made:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 100)
            with anyio.move_on_after(100):
                await anext(made)
        # two groups are complete, and take all places; one more may have been begun before
        assert sum(here.policy.asked.values()) <= 16
        assert len(here.contest.groups) >= 2
