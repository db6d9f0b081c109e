"""Groups on a system: policies, failures, rows, keys and order."""

from __future__ import annotations

import itertools
import random
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from gym_runtime.errors import ModelRefused, UsageError
from gym_runtime.messages.calls import ModelAnswer, ModelCall
from gym_runtime.rollout.groups import Group, GroupPolicy
from gym_runtime.workers.adapter import CallContext
from gym_testing.background import background, settled
from gym_testing.memory import Fate, Passing
from gym_testing.small_system import Engine, Hang, answer
from runtime.client.running_client import CALL, NAME, rows, running_client

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


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
            with anyio.fail_after(15):
                while not await here.gym.driver.bus.latest("runs.*.cancelled.>"):
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


async def test_fewer_or_more_keys_than_rows_are_refused_before_anything_starts() -> None:
    async with running_client() as here:
        with pytest.raises(UsageError, match="fewer entries than rows"):
            await anext(here.gym.groups(rows(2), environment=NAME, keys=["a"]))
        with pytest.raises(UsageError, match="keys has 3 entries for 2 rows"):
            await anext(here.gym.groups(rows(2), environment=NAME, keys=["a", "b", "c"]))
        assert not here.engine.calls.items


@pytest.mark.parametrize("stream", [False, True])
async def test_groups_and_rollouts_come_in_the_order_of_the_rows_where_asked(stream: bool) -> None:
    def given() -> Any:
        # The last row is the first one again, whose group is not complete yet: of a list it joins it.
        listed = [*rows(8), rows(1)[0]]
        return iter(listed) if stream else listed

    async with running_client(engine=Backwards()) as here:
        groups = [group async for group in here.gym.groups(given(), environment=NAME, ordered=True)]
        assert [group.row["n"] for group in groups] == [*range(8), *([0] * stream)]
        made = here.gym.rollouts(given(), environment=NAME, ordered=True, repeats=2)
        order = [(record.numbers["n"], record.rollout_index) async for record in made]
        assert order == [*((n, index) for n in range(8) for index in range(2)), (0, 2), (0, 3)]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("policy", ["replace", "fail_group"])
async def test_rows_that_come_again_and_again_in_a_stream_are_groups_of_their_own(
    policy: GroupPolicy, count: int, ordered: bool
) -> None:
    """Each row comes again while its group before is open, which must not wait for the new rollouts."""
    async with running_client(engine=Failing({"0.0"})) as here:
        made = here.gym.groups(
            itertools.cycle(rows(count)),
            environment=NAME,
            repeats=2,
            in_flight=8,
            on_failure=policy,
            ordered=ordered,
        )
        found: list[Group] = []
        with anyio.fail_after(600):
            async with aclosing(made) as groups:
                async for group in groups:
                    found.append(group)
                    if len(found) == 9:
                        break
        assert sum(group.rewards == [1.0, 1.0] for group in found) >= 8
        assert len({group.task_index for group in found}) == 9
        if ordered:
            assert [group.row["n"] for group in found] == [n % count for n in range(9)]
        await here.at_rest()


class Backwards(Engine):
    """Answers later rows sooner."""

    def __init__(self) -> None:
        super().__init__(answer("done"))

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        await anyio.sleep(10 - int(context.rollout.split(".")[1]))
        return await super().respond(call, context)
