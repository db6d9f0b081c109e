"""Groups: what a trainer gets when a rollout of a group fails for good."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import anyio
import pytest
from gym_runtime.errors import Fault, ModelRefused, UsageError
from gym_runtime.messages.calls import ModelAnswer, ModelCall
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, Outcome, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.groups import REPLACEMENTS, Cancel, Group, GroupPolicy, Groups, Make
from gym_runtime.testing.background import background, settled
from gym_runtime.testing.memory import Fate, Passing
from gym_runtime.testing.small_system import Engine, Hang, answer
from gym_runtime.testing.virtual_clock import BACKEND
from gym_runtime.workers.adapter import CallContext
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from runtime.client.running_client import CALL, NAME, rows, running_client

pytestmark = pytest.mark.anyio

POLICIES: tuple[GroupPolicy, ...] = ("replace", "mask", "shrink", "fail_group")
FAILED = Failed(fault=Fault(kind="model", message="the key is wrong"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


def task(task_index: int, rollout_index: int) -> RolloutSpec:
    return RolloutSpec(
        run="r",
        task_index=task_index,
        rollout_index=rollout_index,
        environment="e",
        agent="a",
        row=Raw(b"{}"),
    )


def tasks(groups: int, repeats: int) -> list[RolloutSpec]:
    return [task(index, rollout) for index in range(groups) for rollout in range(repeats)]


def record(of: RolloutSpec, outcome: Outcome | None = None) -> RolloutRecord:
    outcome = outcome or Completed()
    return RolloutRecord(
        run=of.run,
        task_index=of.task_index,
        rollout_index=of.rollout_index,
        environment=of.environment,
        outcome=outcome,
        row=Raw(b"{}"),
        reward=float(of.rollout_index) if isinstance(outcome, Completed) else None,
    )


# -- the rules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_group_comes_whole_and_in_order_when_its_last_rollout_is_settled(policy: GroupPolicy) -> None:
    groups = noted(policy, tasks(2, 3))
    arrivals = [task(1, 2), task(0, 1), task(1, 0), task(0, 0), task(1, 1)]
    commands = [command for one in arrivals for command in groups.take(record(one))]
    (group,) = commands
    assert isinstance(group, Group)
    assert (group.task_index, group.rewards, group.mask) == (1, [0.0, 1.0, 2.0], [True] * 3)
    assert not group.failed
    assert not group.failures


def noted(policy: GroupPolicy, specs: list[RolloutSpec]) -> Groups:
    groups = Groups(policy)
    assert list(groups.noting(specs)) == specs
    return groups


def settle(policy: GroupPolicy, *outcomes: Outcome) -> list[Make | Cancel | Group]:
    """What one group of so many rollouts leads to."""
    given = tasks(1, len(outcomes))
    groups = noted(policy, given)
    settled = zip(given, outcomes, strict=True)
    return [command for one, outcome in settled for command in groups.take(record(one, outcome))]


def test_a_masked_group_keeps_its_size() -> None:
    (group,) = settle("mask", Completed(), FAILED, Completed())
    assert isinstance(group, Group)
    assert group.rewards == [0.0, None, 2.0]
    assert group.mask == [True, False, True]


def test_a_shrunk_group_has_only_rewards() -> None:
    (group,) = settle("shrink", Completed(), FAILED, Completed())
    assert isinstance(group, Group)
    assert (group.rewards, len(group.failures)) == ([0.0, 2.0], 1)


def test_a_group_fails_with_its_first_rollout_and_the_others_are_cancelled_once() -> None:
    cancel, group = settle("fail_group", Completed(), FAILED, FAILED, Cancelled())
    assert cancel == Cancel(0)
    assert isinstance(group, Group)
    assert (group.rollouts, group.failed) == ([], "a rollout failed: the key is wrong")


def test_a_failed_rollout_is_replaced_by_a_new_one_of_the_same_task() -> None:
    given = tasks(1, 2)
    groups = noted("replace", given)
    (make,) = groups.take(record(given[0], FAILED))
    assert isinstance(make, Make)
    assert (make.task.rollout_index, groups.replacements) == (2, 1)
    assert groups.take(record(given[1])) == []
    (group,) = groups.take(record(make.task))
    assert isinstance(group, Group)
    assert (group.rewards, group.failed) == ([1.0, 2.0], "")


def test_replacing_has_an_end_and_the_group_says_so() -> None:
    given = tasks(1, 2)
    groups = noted("replace", given)
    assert groups.take(record(given[0])) == []
    last: RolloutSpec = given[1]
    for _ in range(REPLACEMENTS * 2):
        (make,) = groups.take(record(last, FAILED))
        assert isinstance(make, Make)
        last = make.task
    (group,) = groups.take(record(last, FAILED))
    assert isinstance(group, Group)
    assert group.rollouts == []
    assert group.failed == "1 of 2 rollouts are missing after 6 replacements: the key is wrong"


def test_a_row_that_is_to_blame_is_not_tried_again_and_again() -> None:
    wrong = Failed(fault=Fault(kind="task", message="a field is missing"))
    (group,) = settle("replace", wrong, wrong)
    assert isinstance(group, Group)
    assert (group.rollouts, group.failed) == ([], "all 2 rollouts failed: a field is missing")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_group_without_any_rollout_left_has_failed(policy: GroupPolicy) -> None:
    group = settle(policy, Cancelled(), Cancelled())[-1]
    assert isinstance(group, Group)
    assert group.rewards == ([None, None] if policy == "mask" else [])
    assert group.failed == "all 2 rollouts failed: cancelled"


def test_advantages_leave_out_what_has_no_reward() -> None:
    (group,) = settle("mask", Completed(), FAILED, Completed())
    assert isinstance(group, Group)
    assert group.advantages("dr_grpo") == [-1.0, 0.0, 1.0]
    assert (settle("mask", FAILED, FAILED)[-1]).advantages() == [0.0, 0.0]  # pyright: ignore


def test_an_unknown_policy_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'shrink'"):
        Groups("shrnk")  # type: ignore[arg-type]


@given(st.sampled_from(POLICIES), st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 5))
def test_every_task_comes_back_once_whatever_fails(
    policy: GroupPolicy, random: Any, count: int, repeats: int
) -> None:
    waiting = tasks(count, repeats)
    groups = noted(policy, waiting)
    back: Counter[int] = Counter()
    settled = 0
    while waiting:
        one = waiting.pop(random.randrange(len(waiting)))
        settled += 1
        for command in groups.take(record(one, random.choice([Completed(), FAILED, Cancelled()]))):
            if isinstance(command, Make):
                waiting.append(command.task)
            elif isinstance(command, Group):
                back[command.task_index] += 1
                assert command.failed or len(command.rollouts) <= repeats
                assert all(command.mask) or policy == "mask"
    assert back == dict.fromkeys(range(count), 1)
    assert settled == count * repeats + groups.replacements


# -- on a system ----------------------------------------------------------------------------------------


class Failing(Engine):
    """Refuses some rollouts for good."""

    def __init__(self, refused: set[str]) -> None:
        super().__init__(answer(CALL), answer("done"))
        self._refused = refused

    async def respond(self, call: Any, context: CallContext) -> Any:
        if context.rollout.partition(".")[2] in self._refused:
            raise ModelRefused("the content filter said no")
        return await super().respond(call, context)


@pytest.mark.parametrize(
    ("policy", "rewards"),
    [
        ("replace", [[1.0] * 3, [1.0] * 3]),
        ("mask", [[1.0] * 3, [1.0, None, 1.0]]),
        ("shrink", [[1.0] * 3, [1.0] * 2]),
        ("fail_group", [[1.0] * 3, []]),
    ],
)
async def test_a_trainer_gets_groups_as_its_policy_says(
    policy: GroupPolicy, rewards: list[list[float | None]]
) -> None:
    async with running_client(engine=Failing({"1.1"})) as here:
        groups = [
            group async for group in here.gym.groups(rows(2), environment=NAME, repeats=3, on_failure=policy)
        ]
        assert [group.rewards for group in sorted(groups, key=lambda group: group.task_index)] == rewards
        await here.at_rest()
        (run,) = await here.gym.runs()
        assert run.state == "finished"


async def test_a_replacement_needs_no_free_place_while_others_wait_for_one() -> None:
    async with running_client(engine=Failing({"0.1"})) as here:
        given = here.gym.groups(rows(4), environment=NAME, repeats=3, on_failure="replace", in_flight=2)
        groups = [group async for group in given]
        assert [group.rewards for group in groups] == [[1.0] * 3] * 4
        assert sum(len(group.failures) for group in groups) == 1
        await here.at_rest()


async def test_a_group_that_fails_is_cancelled_also_at_workers_that_come_later() -> None:
    class Hanging(Failing):
        async def respond(self, call: Any, context: CallContext) -> Any:
            if context.rollout.endswith(".0.0"):
                self._turns = (Hang(),)
            return await super().respond(call, context)

    class Deaf:
        """No signal of a cancellation arrives."""

        def fate(self, passing: Passing, dice: random.Random) -> Fate:
            return Fate(drop=passing.subject.startswith("cancel."))

    async with running_client(engine=Hanging({"0.1"}), faults=Deaf()) as here:
        groups: list[Group] = []

        async def collect() -> None:
            given = here.gym.groups(rows(1), environment=NAME, repeats=2, on_failure="fail_group")
            groups.extend([group async for group in given])

        async with background(collect):
            await here.engine.calls.until(1)
            with anyio.fail_after(10):
                while not await here.gym.bus.latest("runs.*.cancelled.>"):
                    await anyio.sleep(0.01)
            here.system.kill("agent-1")
            await here.system.add_agent(name="agent-2")
            await settled(lambda: bool(groups), within_s=30)
        assert groups[0].failed == "all 2 rollouts failed: the content filter said no"
        assert len(here.engine.calls.items) == 1


async def test_a_group_that_fails_stops_what_is_left_of_it() -> None:
    class Hanging(Failing):
        async def respond(self, call: Any, context: CallContext) -> Any:
            if context.rollout.endswith(".0.0"):
                self._turns = (Hang(),)
            return await super().respond(call, context)

    engine = Hanging({"0.1"})
    async with running_client(engine=engine) as here:
        (group,) = [
            group
            async for group in here.gym.groups(rows(1), environment=NAME, repeats=2, on_failure="fail_group")
        ]
        assert group.failed
        assert len(engine.cancelled.items) == 1
        await here.at_rest()


# -- rows, keys and order -------------------------------------------------------------------------------


async def test_a_group_has_its_row_as_it_was_given() -> None:
    given = rows(2)
    async with running_client() as here:
        groups = [group async for group in here.gym.groups(iter(given), environment=NAME, repeats=2)]
    assert sorted(group.row["n"] for group in groups) == [0, 1]
    assert all(group.row is given[group.task_index] and group.key is None for group in groups)


async def test_the_same_row_twice_is_one_group_and_with_keys_two() -> None:
    twice = rows(1) * 2
    async with running_client() as here:
        (one,) = [group async for group in here.gym.groups(twice, environment=NAME, repeats=2)]
        assert len(one.rollouts) == 4
        made = here.gym.groups(twice, environment=NAME, repeats=2, keys=["a", "b"])
        assert sorted([(group.key, len(group.rollouts)) async for group in made]) == [("a", 2), ("b", 2)]


async def test_rows_with_one_task_index_are_two_groups_with_keys() -> None:
    given = rows(2, _ng_task_index=7)
    async with running_client() as here:
        made = here.gym.groups(given, environment=NAME, keys=range(2))
        assert sorted([(group.key, group.task_index) async for group in made]) == [(0, 0), (1, 1)]


async def test_fewer_keys_than_rows_are_refused_before_anything_starts() -> None:
    async with running_client() as here:
        with pytest.raises(UsageError, match="fewer entries than rows"):
            await anext(here.gym.groups(rows(2), environment=NAME, keys=["a"]))
        assert not here.engine.calls.items


@pytest.mark.parametrize("stream", [False, True])
async def test_groups_and_rollouts_come_in_the_order_of_the_rows_where_asked(stream: bool) -> None:
    def given() -> Any:
        # The last row is the first one again, whose group is not complete yet: it joins it.
        listed = [*rows(8), rows(1)[0]]
        return iter(listed) if stream else listed

    async with running_client(engine=Backwards()) as here:
        groups = [group async for group in here.gym.groups(given(), environment=NAME, ordered=True)]
        assert [group.row["n"] for group in groups] == [*range(8)]
        made = here.gym.rollouts(given(), environment=NAME, ordered=True, repeats=2)
        order = [(record.numbers["n"], record.rollout_index) async for record in made]
        assert order == [*((n, index) for n in range(8) for index in range(2)), (0, 2), (0, 3)]


@pytest.mark.parametrize("in_flight", [1, 2, 3])
async def test_a_row_that_comes_again_and_again_in_a_stream_loses_no_rollout(in_flight: int) -> None:
    given = rows(1) * 5 + rows(2) * 5
    async with running_client() as here:
        made = here.gym.groups(iter(given), environment=NAME, in_flight=in_flight, ordered=True)
        groups = [group async for group in made]
    assert sum(len(group.rollouts) for group in groups) == len(given)
    assert all(group.row["n"] == group.rollouts[0].numbers["n"] for group in groups)


class Backwards(Engine):
    """Answers later rows sooner."""

    def __init__(self) -> None:
        super().__init__(answer("done"))

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        await anyio.sleep(10 - int(context.rollout.split(".")[1]))
        return await super().respond(call, context)
