"""Groups that are trees: rollouts, and rollouts that fork them at some of their turns."""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from gym_runtime import Environment, RolloutRecord, TaskError, UsageError
from gym_runtime.adapters import Agent, Rollout
from gym_runtime.environment import catalogue
from gym_runtime.messages import ModelCall
from gym_runtime.rollout.groups import EPSILON
from gym_runtime.training import Group, TreePlan, tree_advantages, tree_sequences
from gym_testing.small_system import Engine, SmallSystem, answer, environment, row, small_system
from msgspec import Raw
from runtime.client.test_forks import Till, add, with_tokens

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]
KEYWORDS: dict[str, Any] = {"environment": "till", "return_token_ids": True}


class Adds(Engine):
    """A policy that adds so much in its first call, and so on in order; with three calls it answers."""

    def __init__(self, *amounts: int) -> None:
        super().__init__(answer("unused"))
        self.amounts = list(amounts)
        self.asked: list[int] = []

    async def respond(self, call: ModelCall, context: Any) -> Any:
        said = [msgspec.json.decode(item) for item in call.input]
        done = sum(item.get("type") == "function_call_output" for item in said)
        self.asked.append(done)
        # The prompt: one token for the task, three for each turn so far.
        prompt = [*range(1, 2 + 3 * done)]
        if done == 2:
            return with_tokens(answer("done"), prompt)
        return add(self.amounts.pop(0), f"c{done}", prompt)


@pytest.fixture
async def system() -> AsyncGenerator[SmallSystem]:
    async with small_system() as system:
        agent: Agent = catalogue.load_class("agents", "tool_loop")()
        await system.add_agent({"tool_loop": agent})
        await system.add_resource(environment(Environment(resource=Till, description="a till"), "till"))
        yield system


async def groups(system: SmallSystem, tree: TreePlan, **keywords: Any) -> list[Group]:
    rows = [row()]
    return [one async for one in system.client.groups(rows, tree=tree, **KEYWORDS, **keywords)]


async def test_a_group_has_the_forks_of_its_rollouts_and_each_token_is_trained_once(
    system: SmallSystem,
) -> None:
    engine = Adds(1, 2, 10, 20)
    await system.add_model(engine)

    (group,) = await groups(system, TreePlan(times=2))

    # The first rollout adds 1 and 2; its forks share the 1, and add 10 and 20 in their second turn.
    assert [record.turns for record in group.rollouts] == [3, 3, 3]
    assert group.rollouts[0].reward == 3.0
    assert sorted(group.rewards[1:], key=str) == [11.0, 21.0]
    assert sorted(engine.asked) == [0, 1, 1, 1, 2, 2, 2]  # the shared turn was asked once
    parent, *forks = group.rollouts
    for fork in forks:
        about = msgspec.json.decode(fork.row)["_gym"]["fork"]
        assert (about["rollout_id"], about["turn"]) == (parent.rollout_id, 1)
        (shared,), (own,) = fork.sequences(), parent.sequences()
        assert shared.versions == own.versions == ["step-1"]
        assert shared.completion_ids[:5].tolist() == own.completion_ids[:5].tolist()

    # V(first turn) = (3 + 11 + 21) / 3 = 35/3; each other segment has its rollout's reward.
    rewards = [record.reward or 0.0 for record in group.rollouts]
    steps = tree_advantages(group.rollouts, "spo")
    for values, reward in zip(steps, rewards, strict=True):
        assert values == pytest.approx([0.0, reward - 35 / 3, reward - 35 / 3])
    found = tree_sequences(group.rollouts, "tree_rpo")
    # Of 3 × 6 sampled tokens, the two of the shared turn count once.
    assert [int(sequence.mask.sum()) for sequence, _ in found] == [6, 4, 4]
    deviation = math.sqrt(sum((reward - 35 / 3) ** 2 for reward in rewards) / 2)
    for (sequence, values), reward in zip(found, rewards, strict=True):
        expected = (reward - 35 / 3) / (deviation + EPSILON)
        (first, second, last) = sequence.turns
        for start, end in (second, last):
            assert values[start:end].tolist() == pytest.approx([expected] * 2, rel=1e-5)
        assert values[slice(*first)].tolist() == [0.0, 0.0]
        assert not values[~sequence.mask].any()


async def test_a_turn_that_forks_share_is_trained_once_without_their_parent_too(system: SmallSystem) -> None:
    await system.add_model(Adds(1, 2, 10, 20))
    (group,) = await groups(system, TreePlan(times=2))
    parent, *forks = group.rollouts
    unscored = msgspec.structs.replace(parent, reward=None)
    for records in (forks, [unscored, *forks]):
        assert [int(sequence.mask.sum()) for sequence, _ in tree_sequences(records)] == [6, 4]
        for sequence, values in tree_sequences(records):
            assert not values[~sequence.mask].any()


class AsksApart:
    """An agent that asks apart between two turns."""

    async def run(self, rollout: Rollout) -> None:
        await rollout.respond()
        await rollout.respond_apart([Raw(b'{"role":"user","content":"apart"}')])
        await rollout.respond()


async def test_a_tree_with_branches_is_refused(system: SmallSystem) -> None:
    await system.add_model(Engine(with_tokens(answer("done"), [1, 2, 3])))
    await system.add_agent({"asks_apart": AsksApart()}, name="agent-2")
    records = [one async for one in system.client.rollouts([row()], agent="asks_apart", **KEYWORDS)]
    with pytest.raises(TaskError, match="not one conversation"):
        tree_sequences(records)


async def test_shared_turns_are_not_told_as_resampled(system: SmallSystem) -> None:
    await system.add_model(Adds(*range(1, 20)))
    (group,) = await groups(system, TreePlan(at=(2,), times=1))
    for record in group.rollouts:
        assert len(record.sequences()) == 1
        assert "tokens_resampled" not in msgspec.json.decode(record.row)["_gym"]


async def test_rows_of_forks_are_made_in_a_thread(system: SmallSystem) -> None:
    await system.add_model(Adds(*range(1, 20)))
    threads: list[threading.Thread] = []

    def at(record: RolloutRecord) -> list[int]:
        threads.append(threading.current_thread())
        return [1]

    await groups(system, TreePlan(at=at, times=1, depth=2))
    assert len(threads) == 2
    assert threading.current_thread() not in threads


def shares(group: Group) -> list[tuple[int, str]]:
    """Of each rollout, how many turns it shares, and with which rollout's number in the group."""
    names = [record.rollout_id for record in group.rollouts]
    forks = [msgspec.json.decode(record.row)["_gym"].get("fork") for record in group.rollouts]
    return [(one["turn"], str(names.index(one["rollout_id"]))) if one else (0, "") for one in forks]


async def test_forks_are_forked_where_they_have_turns_of_their_own(system: SmallSystem) -> None:
    await system.add_model(Adds(*range(1, 20)))
    (group,) = await groups(system, TreePlan(at=(2, 1, 2, 3, 9), times=1, depth=2))
    # Turn 3 is the last one. The fork at turn 2 has no other turn to be forked at.
    found = shares(group)
    assert sorted(found) == sorted([(0, ""), (1, "0"), (2, "0"), (2, str(found.index((1, "0"))))])
    assert group.rewards == [4.0 if (1, "0") in (one, found[int(one[1] or 0)]) else 3.0 for one in found]

    (other,) = await groups(system, TreePlan(at=lambda record: [record.turns - 1], times=1))
    assert shares(other) == [(0, ""), (2, "0")]


async def test_groups_stay_in_order_and_an_impossible_plan_is_refused(system: SmallSystem) -> None:
    await system.add_model(Adds(*range(1, 40)))
    rows = [row(number=number) for number in range(3)]
    found = [
        group
        async for group in system.client.groups(
            rows, tree=TreePlan(times=1), ordered=True, in_flight=2, repeats=2, **KEYWORDS
        )
    ]
    assert [group.task_index for group in found] == [0, 1, 2]
    assert [len(group.rollouts) for group in found] == [4, 4, 4]
    assert {group.row for group in found} == set(rows)
    with pytest.raises(UsageError, match="times is 0"):
        TreePlan(times=0)
    with pytest.raises(UsageError, match=r"at is 2; it must be a list of turns: \[2\]"):
        TreePlan(at=cast("Any", 2))
    with pytest.raises(UsageError, match=r"at is 2; it must be a list of turns: \[2\]"):
        TreePlan(at=cast("Any", "2"))
    turns = np.array([1])  # it has `__index__`, too
    assert TreePlan(at=cast("Any", turns)).at is turns
