"""Staleness by pacing: no group gets too old, none is thrown away, and sampling does not stop for good."""

from __future__ import annotations

import random

import pytest
from gym_signal.deadlines import Deadlines, free_staleness
from hypothesis import given
from hypothesis import strategies as st


def play(chance: random.Random, batch: int, staleness: int | None, batches: int) -> tuple[list[int], int]:
    """Groups of any duration, some of which leave; returns the ages in batches, and how many never ended."""
    law = Deadlines(batch, staleness)
    running, done, ages = list[int](), list[int](), list[int]()
    pending_update = False
    while law.taken < batches:
        moves = [
            move
            for move, may in (
                ("start", law.may_start() and len(running) < 4 * batch),
                ("finish", bool(running)),
                ("install", pending_update),
            )
            if may
        ]
        chosen = sorted(done)[:batch]
        # As `Plan.next`: a batch is taken only after the weights of the batch before are installed.
        if len(chosen) == batch and not pending_update and law.may_take(chosen):
            moves.append("take")
        assert moves, "neither a start nor a batch is allowed, and nothing runs: sampling has stopped"
        match chance.choice(moves):
            case "start":
                running.append(law.start())
            case "finish":
                born = running.pop(chance.randrange(len(running)))
                if chance.random() < 0.3:
                    law.leave(born)
                else:
                    done.append(born)
            case "install":
                law.installed()
                pending_update = False
            case _:
                ages += [law.taken - born for born in chosen]
                for born in chosen:
                    done.remove(born)
                law.take(chosen)
                pending_update = True
    return ages, len(running)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 5))
def test_no_group_is_older_than_the_bound_and_sampling_goes_on(seed: int, batch: int, staleness: int) -> None:
    ages, _ = play(random.Random(seed), batch, staleness, batches=40)
    assert max(ages) <= staleness


def test_without_a_bound_groups_get_older() -> None:
    """Or the test above could not fail."""
    ages, _ = play(random.Random(1), 4, None, batches=200)
    assert max(ages) > 5


def test_a_bound_of_zero_is_on_policy() -> None:
    law = Deadlines(2, 0)
    assert [law.start(), law.start()] == [0, 0]
    assert not law.may_start()
    law.take([0, 0])
    assert not law.may_start()  # the weights are still the old ones
    law.installed()
    assert law.may_start()
    assert law.start() == 1


def test_a_group_that_is_due_holds_the_batch_up() -> None:
    law = Deadlines(1, 1)
    old = law.start()
    assert law.start() == old == 0
    law.take([0])
    law.installed()
    assert law.start() == 1
    # The other one of version 0 is due in this batch, so a younger one must not take its place.
    assert not law.may_take([1])
    assert law.may_take([0])


def test_the_bound_that_costs_nothing() -> None:
    assert free_staleness([10.0] * 8, in_flight=256, batch=128) == 1
    assert free_staleness([1.0] * 9 + [11.0], in_flight=256, batch=128) == 10
    assert free_staleness([5.0], in_flight=4, batch=128) == 0
    assert free_staleness([0.0], in_flight=4, batch=128) == 0


@pytest.mark.soak
def test_the_bound_holds_for_ten_thousand_batches() -> None:
    for staleness in (0, 1, 3, 15):
        ages, _ = play(random.Random(staleness), 8, staleness, batches=10_000)
        assert max(ages) <= staleness
