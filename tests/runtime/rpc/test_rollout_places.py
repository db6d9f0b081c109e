"""Who begins when at an agent worker, after workers were lost."""

from __future__ import annotations

import anyio
import pytest
from gym_runtime.rpc.quarantine import GROUPS, ROLLOUT_ALONE_AT, RolloutPlaces

pytestmark = pytest.mark.anyio


async def test_one_that_must_be_alone_waits_for_those_that_are_new_and_holds_up_those_that_come() -> None:
    places = RolloutPlaces()
    new = places.place(0)
    suspect = places.place(ROLLOUT_ALONE_AT)
    assert not new.limited
    assert suspect.limited
    order: list[str] = []

    async def begin(name: str, losses: int) -> None:
        place = places.place(losses)
        assert place.limited
        await place.take()
        order.append(name)

    async def begin_suspect() -> None:
        await suspect.take()
        order.append("suspect")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(begin_suspect)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(begin, "later", 0)
        tasks.start_soon(begin, "of the group", 1)
        await anyio.wait_all_tasks_blocked()
        assert order == []
        new.give_up()
        await anyio.wait_all_tasks_blocked()
        assert order == ["suspect"]
        suspect.give_up()
    assert sorted(order) == ["later", "of the group", "suspect"]


@pytest.mark.parametrize("losses", [1, 2])
async def test_a_group_has_so_many_places_and_one_that_gives_up_waiting_delays_no_other(losses: int) -> None:
    places = RolloutPlaces()
    group = [places.place(losses) for _ in range(int(GROUPS[losses]))]
    last = places.place(losses)
    assert not any(place.limited for place in group)
    assert last.limited
    assert not places.place(0).limited
    assert not places.place(3 - losses).limited
    with anyio.move_on_after(1) as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(places.place(ROLLOUT_ALONE_AT).take)
            await anyio.wait_all_tasks_blocked()
            assert places.waiting == 1
            scope.cancel()
    assert places.waiting == 0
    assert not places.place(0).limited
    group[0].give_up()
    group[0].give_up()
    await last.take()
    assert places.place(losses).limited


async def test_one_that_lost_more_workers_has_the_same_place_alone() -> None:
    places = RolloutPlaces()
    first, second = places.place(ROLLOUT_ALONE_AT), places.place(ROLLOUT_ALONE_AT + 5)
    assert not first.limited
    assert second.limited
    first.give_up()
    await second.take()
    assert places.place(0).limited
