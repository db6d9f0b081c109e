"""Callers that wait: nobody overtakes, nobody's place is lost."""

from __future__ import annotations

import anyio
import pytest
from gym_models.wire.waiting_line import WaitingLine

pytestmark = pytest.mark.anyio


class Room:
    """So many places, and who has taken one."""

    def __init__(self) -> None:
        self.line = WaitingLine()
        self.places = 0
        self.taken: list[int] = []

    async def enter(self, caller: int) -> None:
        await self.line.wait(self.take)
        self.taken.append(caller)

    def take(self) -> bool | None:
        if not self.places:
            return None
        self.places -= 1
        return True


async def test_who_is_woken_for_nothing_keeps_its_place() -> None:
    room = Room()
    async with anyio.create_task_group() as tasks:
        for caller in range(5):
            tasks.start_soon(room.enter, caller)
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):
            room.line.wake()
            await anyio.wait_all_tasks_blocked()
            assert len(room.line) == 5
        for _ in range(5):
            room.places += 1
            room.line.wake(1)
            await anyio.wait_all_tasks_blocked()
    assert room.taken == [0, 1, 2, 3, 4]
    assert len(room.line) == 0


async def test_two_places_wake_two_who_have_not_been_told_yet() -> None:
    room = Room()
    async with anyio.create_task_group() as tasks:
        for caller in range(3):
            tasks.start_soon(room.enter, caller)
        await anyio.wait_all_tasks_blocked()
        room.places = 2
        room.line.wake(1)
        room.line.wake(1)
        await anyio.wait_all_tasks_blocked()
        assert room.taken == [0, 1]
        room.places = 1
        room.line.wake(7)
    assert room.taken == [0, 1, 2]


async def test_the_turn_of_one_who_leaves_goes_to_the_next() -> None:
    room = Room()
    leaving = anyio.CancelScope()

    async def leaves() -> None:
        with leaving:
            await room.enter(0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leaves)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(room.enter, 1)
        await anyio.wait_all_tasks_blocked()
        room.places = 1
        leaving.cancel()
        room.line.wake(1)
    assert room.taken == [1]
