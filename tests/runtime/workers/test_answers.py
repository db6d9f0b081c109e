"""A session answers each key once."""

from __future__ import annotations

import anyio
import pytest
from gym_runtime.errors import ResourceError
from gym_runtime.workers.sessions import REMEMBERED_ANSWERS
from msgspec import Raw
from runtime.workers.rooms import entry

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Work:
    """Counts how often it is done."""

    def __init__(self, takes_s: float = 0.0, error: Exception | None = None) -> None:
        self.done = 0
        self._takes_s = takes_s
        self._error = error

    async def __call__(self) -> Raw:
        self.done += 1
        await anyio.sleep(self._takes_s)
        if self._error is not None:
            raise self._error
        return Raw(b"%d" % self.done)


async def test_a_repeated_key_gets_the_first_answer() -> None:
    kept, work = entry(), Work()
    assert [bytes(await kept.once(key, work)) for key in ("1", "1", "2", "1")] == [b"1", b"1", b"2", b"1"]
    assert work.done == 2


async def test_a_key_repeated_while_it_is_worked_on_waits_for_that_answer() -> None:
    kept, work = entry(), Work(takes_s=5)
    answers: list[bytes] = []

    async def ask() -> None:
        answers.append(bytes(await kept.once("1", work)))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    assert answers == [b"1"] * 3
    assert work.done == 1


async def test_an_error_is_an_answer_too() -> None:
    kept, work = entry(), Work(takes_s=1, error=ResourceError("the tool's database is broken"))
    failures: list[str] = []

    async def ask() -> None:
        try:
            await kept.once("1", work)
        except ResourceError as error:
            failures.append(error.message)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    await ask()
    assert failures == ["the tool's database is broken"] * 4
    assert work.done == 1


async def test_cancelling_the_first_leaves_the_key_to_one_of_those_who_wait() -> None:
    kept, work = entry(), Work(takes_s=5)
    answers: list[bytes] = []
    async with anyio.create_task_group() as tasks:
        first = anyio.CancelScope()

        async def ask_first() -> None:
            with first:
                await kept.once("1", work)

        async def ask() -> None:
            answers.append(bytes(await kept.once("1", work)))

        tasks.start_soon(ask_first)
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):
            tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        first.cancel()
    assert answers == [b"2"] * 3
    assert work.done == 2


async def test_a_bug_is_not_remembered() -> None:
    kept, work = entry(), Work(error=ValueError("a bug"))
    for _ in range(2):
        with pytest.raises(ValueError, match="a bug"):
            await kept.once("1", work)
    assert work.done == 2


async def test_calls_without_a_key_are_calls_of_their_own() -> None:
    kept, work = entry(), Work()
    assert [bytes(await kept.once("", work)) for _ in range(2)] == [b"1", b"2"]


async def test_only_so_many_answers_are_remembered_and_never_one_on_its_way_forgotten() -> None:
    kept, slow, quick = entry(), Work(takes_s=5), Work()
    answers: list[bytes] = []

    async def ask_slowly() -> None:
        answers.append(bytes(await kept.once("slow", slow)))

    async with anyio.create_task_group() as tasks:
        first = anyio.CancelScope()

        async def ask_first() -> None:
            with first:
                await kept.once("slow", slow)

        tasks.start_soon(ask_first)
        await anyio.wait_all_tasks_blocked()
        for number in range(2 * REMEMBERED_ANSWERS):
            await kept.once(str(number), quick)
        tasks.start_soon(ask_slowly)
        await anyio.wait_all_tasks_blocked()
        assert slow.done == 1
        first.cancel()
    assert answers == [b"2"]
    await kept.once("0", quick)
    assert quick.done == 2 * REMEMBERED_ANSWERS + 1
    await kept.once(str(2 * REMEMBERED_ANSWERS - 1), quick)
    assert quick.done == 2 * REMEMBERED_ANSWERS + 1
