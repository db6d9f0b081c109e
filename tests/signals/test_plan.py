"""What is sampled next: waves, bets, replacements, and how many groups run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from gym_runtime import UsageError
from gym_signal import Bet, Uniform
from gym_signal.plan import Drawn, Order, Plan

Reward = Callable[[int, int], float | None]


def finish(plan: Plan, order: Order | None, reward: Reward, tokens: int = 10, **how: Any) -> None:
    """End the rollouts of an order, and all that it leads to."""
    while order is not None:
        group, following = order.group, None
        for member in order.members:
            following = plan.finished(group, member, reward(group.task, member), tokens, **how) or following
        order = following


def mixed(task: int, member: int) -> float:
    return float(member % 2)


def plan_of(want: int = 2, size: int = 4, **how: Any) -> Plan:
    return Plan(Uniform(100, size), want, **{"ahead": 0, **how})


def test_a_batch_of_groups_with_signal() -> None:
    plan = plan_of()
    # Before anything is known half of the groups are expected to have signal.
    orders = list(plan.due())
    assert len(orders) == 6
    assert list(plan.due()) == []
    assert all(order.members == range(4) for order in orders)
    for order in orders:
        finish(plan, order, mixed)
    batch = plan.take()
    assert batch is not None
    assert [group.ended for group in batch] == ["signal"] * 2
    # The surplus waits, and is the next two batches.
    assert len(plan.ready) == 4
    assert list(plan.due()) == []
    assert plan.take() is not None
    assert plan.take() is not None
    assert plan.take() is None


def test_flat_groups_are_replaced() -> None:
    plan, started = plan_of(), 0
    while (batch := plan.take()) is None:
        for order in list(plan.due()):
            started += 1
            finish(plan, order, mixed if started % 5 == 0 else lambda task, member: 1.0)
    assert len(batch) == 2
    assert started >= 10
    assert plan.share < 0.5


def test_groups_without_signal_are_kept_where_that_is_asked() -> None:
    plan = plan_of(signal=False)
    orders = list(plan.due())
    assert len(orders) == 2
    for order in orders:
        finish(plan, order, lambda task, member: 0.0)
    assert plan.take() is not None


def test_a_wave_starts_when_the_wave_before_has_ended() -> None:
    plan = plan_of(want=1, size=8, waves=(2, 2, 4), bet=Bet(below=0), in_flight=1)
    (order,) = plan.due()
    group = order.group
    assert order.members == range(2)
    assert plan.finished(group, 1, 0.0, 10) is None
    assert plan.finished(group, 0, 0.0, 10) == Order(group, range(2, 4))
    assert plan.finished(group, 3, 0.0, 10) is None
    assert plan.finished(group, 2, 0.0, 10) == Order(group, range(4, 8))
    for member in (7, 5, 6):
        assert plan.finished(group, member, 0.0, 10) is None
    assert group.ended is None
    plan.finished(group, 4, 1.0, 10)
    assert group.ended == "signal"
    assert group.scored == [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]


def test_what_is_decided_does_not_depend_on_the_order_of_completion() -> None:
    def ends(shuffled: random.Random) -> list[str | None]:
        plan = plan_of(want=50, size=8, waves=(4, 4), in_flight=1, seed=7)
        groups = list[Drawn]()
        for _ in range(50):
            (order,) = plan.due()
            groups.append(order.group)
            following: Order | None = order
            while following is not None:
                members, now = list(following.members), None
                shuffled.shuffle(members)
                for member in members:
                    reward = float(random.Random(f"{order.group.task}.{member}").random() < 0.1)
                    now = plan.finished(order.group, member, reward, 10) or now
                following = now
        return [group.ended for group in groups]

    first = ends(random.Random(1))
    assert first == ends(random.Random(2)) == ends(random.Random(3))
    assert {"signal", "stopped"} <= set(first)


def test_a_group_that_could_have_been_stopped_counts_more() -> None:
    """Each reward of a rare success counts as often as if no group had been stopped: Horvitz and Thompson."""
    plan = plan_of(want=4000, size=8, waves=(4, 4), bet=Bet(below=1, keep=0.25), in_flight=1)
    chance, weights, signal = random.Random(5), 0.0, 0
    for _ in range(4000):
        (order,) = plan.due()
        rewards = [float(chance.random() < 0.1) for _ in range(8)]
        signal += 0 < sum(rewards) < 8
        finish(plan, order, lambda task, member, rewards=rewards: rewards[member])
        if order.group.ended == "signal":
            assert order.group.weight == (1.0 if len(set(rewards[:4])) == 2 else 4.0)
            weights += order.group.weight
    assert weights == pytest.approx(signal, rel=0.1)


def test_a_failed_rollout_is_replaced_and_the_group_has_its_size() -> None:
    plan = plan_of(want=1, in_flight=1)
    (order,) = plan.due()
    finish(plan, order, lambda task, member: None if member in (1, 4) else float(member % 2))
    group = order.group
    assert group.ended == "signal"
    assert len(group.scored) == 4
    assert group.ordered == 6


def test_a_group_fails_when_replacements_fail_or_none_helps() -> None:
    plan = plan_of(want=1, in_flight=1)
    (order,) = plan.due()
    finish(plan, order, lambda task, member: None)
    assert order.group.ended == "failed"
    assert order.group.ordered == 4 + 4 * 3
    (order,) = plan.due()
    finish(plan, order, lambda task, member: None, hopeless=True)
    assert order.group.ended == "failed"
    assert order.group.ordered == 4
    assert plan.take() is None
    assert not plan.ready


def test_a_bound_holds_new_groups_back() -> None:
    plan = plan_of(want=2, staleness=0, ahead=None)
    orders = list(plan.due())
    assert len(orders) == 2
    finish(plan, orders[0], lambda task, member: 0.0)
    (another,) = plan.due()
    for order in (orders[1], another):
        finish(plan, order, mixed)
    assert plan.take() is not None
    assert list(plan.due()) == []
    plan.installed()
    assert len(list(plan.due())) == 2


def test_the_bound_that_costs_nothing_follows_from_the_lengths() -> None:
    plan = plan_of(want=2, in_flight=8)
    assert plan.free_staleness is None
    for number, order in enumerate(list(plan.due())):
        finish(plan, order, mixed, tokens=60 if number == 0 else 10)
    assert plan.free_staleness == 13  # 8 places * 60 tokens at most / 18.3 on average / batches of 2, less 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"want": "4"}, "want is '4'; it must be a whole number of at least 1"),
        ({"in_flight": 0}, "in_flight is 0; it must"),
        ({"waves": (4, 0)}, "waves.1. is 0; it must"),
        ({"staleness": -1}, "staleness is -1; it must be a whole number of at least 0"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_of(**wrong)
    with pytest.raises(UsageError, match="keep above 0"):
        Bet(keep=0)
