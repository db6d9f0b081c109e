"""Jobs in tasks that are used again: as in tasks of their own, and nothing passes from one to the next."""

from __future__ import annotations

import asyncio
import weakref
from contextvars import ContextVar

import anyio
import anyio.lowlevel
import pytest
from gym_runtime import logs
from gym_runtime.task_pool import MOST_IDLE, TaskPool

pytestmark = pytest.mark.anyio

seat: ContextVar[str] = ContextVar("seat", default="free")


async def settled(tasks: set[asyncio.Task[object] | None]) -> None:
    tasks.add(asyncio.current_task())


async def rounds(number: int = 3) -> None:
    """Let every task that can go on do so."""
    for _ in range(number):
        await anyio.lowlevel.checkpoint()


async def test_a_finished_task_does_the_next_job() -> None:
    tasks = set[asyncio.Task[object] | None]()
    async with anyio.create_task_group() as group:
        crew = TaskPool(group)
        for _ in range(5):
            crew.start_soon(settled, tasks)
            await rounds()
        assert len(tasks) == 1
        for _ in range(5):
            crew.start_soon(settled, tasks)
        await rounds()
        assert len(tasks) == 5
        crew.close()
    assert all(task is not None and task.done() for task in tasks)


async def test_no_more_tasks_wait_than_are_allowed() -> None:
    tasks = set[asyncio.Task[object] | None]()
    async with anyio.create_task_group() as group:
        crew = TaskPool(group)
        for _ in range(2 * MOST_IDLE):
            crew.start_soon(settled, tasks)
        await rounds()
        assert sum(task is not None and not task.done() for task in tasks) == MOST_IDLE
        crew.close()


async def test_a_job_sees_no_context_of_the_one_before() -> None:
    seen: list[object] = []

    async def sit() -> None:
        seen.append((seat.get(), asyncio.current_task()))
        seat.set("taken")

    async def log() -> None:
        seen.append(logs.rollout())
        logs.set_rollout("run.0.0", 1)

    async with anyio.create_task_group() as group:
        crew = TaskPool(group)
        for work in (sit, sit, log, log):
            crew.start_soon(work)
            await rounds()
        crew.close()
    (first, one), (second, other), *said = seen  # pyright: ignore[reportGeneralTypeIssues]
    assert (first, second) == ("free", "free")
    assert one is not other
    assert said == [("", 0), ("", 0)]


async def test_a_waiting_task_keeps_no_job_in_memory() -> None:
    class Payload:
        pass

    async def work(payload: Payload) -> None:
        pass

    async with anyio.create_task_group() as group:
        crew = TaskPool(group)
        payload = Payload()
        kept = weakref.ref(payload)
        crew.start_soon(work, payload)
        await rounds()
        crew.start_soon(work, payload)
        await rounds()
        del payload
        assert kept() is None
        crew.close()


async def test_what_a_job_raises_ends_the_group() -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    with pytest.raises(ExceptionGroup) as raised:
        async with anyio.create_task_group() as group:
            crew = TaskPool(group)
            crew.start_soon(settled, set())
            await rounds()
            crew.start_soon(fail)
            await anyio.sleep_forever()
    assert raised.group_contains(ValueError, match="a bug")


async def test_a_cancelled_job_cleans_up_in_its_shield() -> None:
    cleaned: list[str] = []

    async def work(name: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await rounds(10)
                cleaned.append(name)

    with anyio.fail_after(15):
        async with anyio.create_task_group() as group:
            crew = TaskPool(group)
            crew.start_soon(settled, set())
            await rounds()
            crew.start_soon(work, "in a used task")
            crew.start_soon(work, "in a new one")
            await rounds()
            group.cancel_scope.cancel()
    assert sorted(cleaned) == ["in a new one", "in a used task"]


async def test_a_cancelled_scope_ends_its_job_and_no_other() -> None:
    ended: list[str] = []
    scopes: list[anyio.CancelScope] = []
    tasks = set[asyncio.Task[object] | None]()

    async def work(scope: anyio.CancelScope, name: str) -> None:
        scopes.append(scope)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            ended.append(name)
            if name != "goes on":
                raise

    async with anyio.create_task_group() as group:
        crew = TaskPool(group)
        for _ in range(2):
            crew.start_soon(settled, tasks)
        await rounds()
        for name in ("one", "other", "goes on"):
            crew.start_in_scope(work, name)
        await rounds()
        for scope in (scopes[1], scopes[2]):
            scope.cancel()
            await rounds()
        assert ended == ["other", "goes on"]
        # What follows is in tasks that nothing has cancelled.
        for _ in range(5):
            crew.start_soon(settled, tasks)
        await rounds()
        assert len(tasks) == 7
        assert not scopes[0].cancel_called
        scopes[0].cancel()
        await rounds()
        crew.close()
    assert ended == ["other", "goes on", "one"]
