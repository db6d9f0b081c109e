"""Sessions: opened once, closed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest
from gym_runtime import Session, Task, clock
from gym_runtime.environment.resource import CLOSE_LIMIT_S
from gym_runtime.errors import GymError, ResourceError, SessionLost
from gym_runtime.workers.sessions import HeldSession, Sessions
from gym_testing.background import background
from gym_testing.virtual_clock import run
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from runtime.workers.rooms import TASK, Room

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class PlainRoom(Session[Task]):
    """A session whose ``close`` is no coroutine."""

    def __init__(self) -> None:
        super().__init__(TASK)
        self.closed = 0

    def close(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.closed += 1


def opening(session: Session[Any], after_s: float = 0.0) -> Callable[[], Awaitable[Session[Any]]]:
    async def opener() -> Session[Any]:
        await anyio.sleep(after_s)
        return session

    return opener


async def unwanted() -> Session[Any]:
    raise AssertionError("it was open already")


async def test_a_session_is_opened_by_the_first_who_brings_the_task() -> None:
    sessions = Sessions()
    room = Room()
    entry = await sessions.get("a", 100, opening(room))
    assert entry.session is room
    assert await sessions.get("a", 100, unwanted) is entry
    assert await sessions.get("a", 100, None) is entry
    assert len(sessions) == 1


async def test_a_session_that_is_not_here_is_lost() -> None:
    with pytest.raises(SessionLost, match="session a is not on this worker"):
        await Sessions().get("a", 100, None)


async def test_calls_that_come_while_a_session_opens_wait_for_it() -> None:
    sessions = Sessions()
    entries: list[HeldSession] = []

    async def get(opener: Callable[[], Awaitable[Session[Any]]] | None) -> None:
        entries.append(await sessions.get("a", 100, opener))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(get, opening(Room(), 1))
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(get, unwanted)
        tasks.start_soon(get, None)
    assert len({id(entry) for entry in entries}) == 1


async def test_when_opening_fails_the_next_call_opens() -> None:
    sessions = Sessions()

    async def broken() -> Session[Any]:
        raise ResourceError("no sandbox")

    with pytest.raises(ResourceError):
        await sessions.get("a", 100, broken)
    assert len(sessions) == 0
    await sessions.get("a", 100, opening(Room()))


async def test_when_who_opens_is_cancelled_who_waits_opens() -> None:
    sessions = Sessions()
    room = Room()
    async with anyio.create_task_group() as tasks:
        first = anyio.CancelScope()

        async def get_first() -> None:
            with first:
                await sessions.get("a", 100, opening(Room(), 1000))

        async def get_second() -> None:
            assert (await sessions.get("a", 100, opening(room))).session is room

        tasks.start_soon(get_first)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(get_second)
        await anyio.wait_all_tasks_blocked()
        first.cancel()


@pytest.mark.parametrize("kind", [Room, PlainRoom])
async def test_a_session_is_closed_once_however_often_that_is_said(
    kind: type[Room] | type[PlainRoom], capsys: pytest.CaptureFixture[str]
) -> None:
    sessions = Sessions()
    room = kind()
    await sessions.get("a", 100, opening(room))
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(sessions.close, "a")
    await sessions.close("a")
    await sessions.close("b")
    await sessions.close_all()
    assert room.closed == 1
    assert "raised" not in capsys.readouterr().err


async def test_closing_while_it_opens_closes_it() -> None:
    sessions = Sessions()
    room = Room()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sessions.get, "a", 100, opening(room, 5))
        await anyio.wait_all_tasks_blocked()
        await sessions.close("a")
    assert (room.closed, len(sessions)) == (1, 0)


async def test_what_a_close_raises_or_how_long_it_takes_hinders_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Stubborn(Session[Task]):
        async def close(self) -> None:
            raise ValueError("I stay")

    sessions = Sessions()
    rooms = [Room(closing_s=3600), *[Room(closing_s=1) for _ in range(20)]]
    await sessions.get("stubborn", 100, opening(Stubborn(TASK)))
    for number, room in enumerate(rooms):
        await sessions.get(str(number), 100, opening(room))
    started_s = clock.monotonic()
    await sessions.close_all()
    assert clock.monotonic() - started_s == pytest.approx(CLOSE_LIMIT_S)
    assert [room.closed for room in rooms] == [0, *[1] * 20]
    assert len(sessions) == 0
    assert "I stay" in capsys.readouterr().err


async def test_emptied_returns_with_the_last_session() -> None:
    sessions = Sessions()
    await sessions.emptied()
    emptied_s: list[float] = []

    async def wait() -> None:
        await sessions.emptied()
        emptied_s.append(clock.monotonic())

    for name in "ab":
        await sessions.get(name, 100, opening(Room()))
    async with background(wait):
        await sessions.close("a")
        await anyio.sleep(1)
        assert not emptied_s
        await sessions.close("b")
        await anyio.wait_all_tasks_blocked()
        assert emptied_s


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["call", "call", "call", "close"]),
        st.sampled_from("ab"),  # session
        st.sampled_from("xyz"),  # key
        st.floats(0, 10),  # begins after so many seconds
        st.floats(0, 5),  # is cancelled after so many
    ),
    max_size=25,
)


@pytest.mark.slow
@given(EVENTS, st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_no_order_of_events_opens_answers_or_closes_anything_twice(
    events: list[tuple[str, str, str, float, float]], seed: int
) -> None:
    rooms: list[Room] = []
    done: Counter[tuple[int, str]] = Counter()

    async def main() -> None:
        sessions = Sessions()

        async def open_room() -> Session[Any]:
            await anyio.sleep(1)
            room = Room(closing_s=0.5)
            rooms.append(room)
            return room

        async def work(entry: HeldSession, key: str) -> Raw:
            await anyio.sleep(1)
            done[id(entry), key] += 1
            return Raw(b"%d" % id(entry))

        async def happen(what: str, name: str, key: str, after_s: float, limit_s: float) -> None:
            await anyio.sleep(after_s)
            with anyio.move_on_after(limit_s):
                if what == "close":
                    return await sessions.close(name)
                try:
                    entry = await sessions.get(name, 1e10, open_room)
                    kept.append(entry)
                    answer = await entry.once(key, partial(work, entry, key))
                except GymError:
                    raise AssertionError("nothing here fails") from None
                assert bytes(answer) == b"%d" % id(entry)
            return None

        kept: list[HeldSession] = []
        async with anyio.create_task_group() as tasks:
            for event in events:
                tasks.start_soon(happen, *event)
        await sessions.close_all()
        assert len(sessions) == 0
        assert all(count == 1 for count in done.values())
        assert all(room.closed == 1 for room in rooms)

    run(main, seed=seed)
