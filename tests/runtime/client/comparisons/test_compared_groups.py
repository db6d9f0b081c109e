"""Groups that are compared as a whole, replaced or made smaller."""

from __future__ import annotations

from typing import Any

import pytest
from gym_runtime.errors import ModelRefused
from runtime.client.comparisons.compared_groups import Here, groups

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_a_rollout_is_replaced_before_its_group_is_compared(here: Here) -> None:
    await here.start(r1=ModelRefused("no"))
    found = await groups(here)
    assert [group.rewards for group in found] == [[0, 1, 2]] * 2
    assert [[one.rollout_index for one in group.rollouts] for group in found] == [[0, 2, 3]] * 2
    assert here.contest.groups == [[0, 2, 3]] * 2


@pytest.mark.parametrize(("policy", "rewarded"), [("shrink", [0, 1]), ("mask", [0, None, 1])])
async def test_a_smaller_group_is_compared(here: Here, policy: Any, rewarded: list[float]) -> None:
    await here.start(r1=ModelRefused("no"))
    assert [group.rewards for group in await groups(here, on_failure=policy)] == [rewarded] * 2


async def test_a_group_that_fails_as_a_whole_is_returned_too(here: Here) -> None:
    await here.start(r1=ModelRefused("no"))
    found = await groups(here, on_failure="fail_group")
    assert all(group.failed and not group.rollouts for group in found)


async def test_what_cannot_be_compared_is_not_replaced(here: Here) -> None:
    await here.start(r0="odd")
    found = await groups(here)
    assert all("it cannot be ranked" in group.failed and len(group.failures) == 1 for group in found)
    assert len(here.contest.groups) == 2


async def test_a_comparison_whose_judge_failed_is_made_of_new_rollouts(here: Here) -> None:
    await here.start()
    here.contest.trouble = [ModelRefused("no", stage="judge")]
    found = await groups(here)
    assert sorted(group.rewards for group in found) == [[0, 1, 2]] * 2
    assert sorted(map(tuple, here.contest.groups)) == [(0, 1, 2), (0, 1, 2), (3, 4, 5)]
