"""The rules of groups."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from gym_runtime.errors import Fault, UsageError
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, Outcome
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.groups import REPLACEMENTS, Cancel, Group, GroupPolicy, Groups, Make, advantages
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from runtime.rollout.group_records import record

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


POLICIES: tuple[GroupPolicy, ...] = ("replace", "mask", "shrink", "fail_group")


FAILED = Failed(fault=Fault(kind="model", message="the key is wrong"))


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
    assert cancel == Cancel(0, [2, 3])
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


def test_no_two_rollouts_of_a_group_have_one_seed() -> None:
    """An engine that keeps to seeds would answer twice the same."""
    groups = Groups("replace", seeded=True)
    line = b'{"responses_create_params":{"input":"hi"},"initial_count":3,"expected_count":4}'
    settings = RolloutSettings(repeats=2, seed_repeats=True, sampling={"seed": 10})
    stream = groups.noting(expand([line], settings, run="r", environment="example_session_state_mgmt"))
    first, second = stream
    (make,) = groups.take(record(first, FAILED))
    assert isinstance(make, Make)
    (again,) = groups.take(record(make.task, FAILED))
    assert isinstance(again, Make)
    groups.take(record(second))
    groups.take(record(again.task))
    found = [first, second, make.task, again.task]
    assert [one.rollout_index for one in found] == [0, 1, 2, 3]
    assert [seed(one) for one in found] == [10, 11, 12, 13]


def seed(spec: RolloutSpec) -> int:
    metadata = msgspec.json.decode(spec.row)["responses_create_params"]["metadata"]
    return msgspec.json.decode(metadata["extra_body"])["seed"]


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
    assert group.advantages == advantages(group.rewards) != [0.0] * 3
    assert advantages(group.rewards, "dr_grpo") == [-1.0, 0.0, 1.0]
    assert (settle("mask", FAILED, FAILED)[-1]).advantages == [0.0, 0.0]  # pyright: ignore


def test_an_unknown_policy_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"did you mean 'shrink'\?$"):
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
