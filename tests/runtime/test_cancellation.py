"""What becomes of a cancellation that comes from an author's code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest
from gym_runtime.cancellation import contained
from gym_runtime.errors import ResourceError, RuntimeFault
from gym_runtime.messages.calls import Request
from gym_runtime.rpc.answer import Service
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.task_pool import TaskPool
from gym_testing.memory import MemoryBroker
from msgspec import Raw
from tables import table

pytestmark = pytest.mark.anyio
Code = Callable[[], Awaitable[object]]


async def awaits_a_cancelled_task() -> None:
    task = asyncio.get_running_loop().create_task(asyncio.sleep(60))
    task.cancel()
    await task


async def raises() -> None:
    raise asyncio.CancelledError


async def raises_a_group() -> None:
    raise BaseExceptionGroup("group", [asyncio.CancelledError()])


async def cancels_itself() -> None:
    await this_task()


async def cancels_itself_and_waits() -> None:
    await this_task()
    await asyncio.sleep(60)


async def cancels_itself_twice() -> None:
    await this_task()
    await this_task()
    await anyio.sleep(60)


async def this_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def call(code: Code) -> None:
    async with contained(ResourceError, "verify"):
        await code()


LEAKS: list[Code] = [awaits_a_cancelled_task, raises, raises_a_group]
SUICIDES: list[Code] = [cancels_itself, cancels_itself_and_waits, cancels_itself_twice]


@table("crew", [False, True])
@table("code", LEAKS)
async def test_a_cancellation_from_within_is_an_error_with_its_place(code: Code, crew: bool) -> None:
    async def job() -> None:
        with pytest.raises(
            ResourceError, match=r"raised CancelledError \(.*test_cancellation\.py:\d+\)"
        ) as found:
            await call(code)
        assert found.value.stage == "verify"
        await anyio.lowlevel.checkpoint()
        ended.append("job")

    ended: list[str] = []
    async with anyio.create_task_group() as group:
        members = TaskPool(group)
        (members.start_soon if crew else group.start_soon)(job)
        members.close()
    assert ended == ["job"]


@pytest.mark.parametrize("code", SUICIDES)
async def test_a_job_that_cancels_its_own_task_leaves_no_trace_in_it(code: Code) -> None:
    ended: list[str] = []

    async def job() -> None:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(ResourceError, match="cancelled the task that runs it"):
            await call(code)
        assert not task.cancelling()
        with anyio.move_on_after(0.01) as scope:  # it catches its own cancellation
            await anyio.sleep(60)
        assert scope.cancelled_caught
        ended.append("job")

    async with anyio.create_task_group() as group:
        crew = TaskPool(group)
        crew.start_soon(job)
        crew.close()
    assert ended == ["job"]


@pytest.mark.parametrize("code", [*LEAKS[:2], *SUICIDES])
async def test_a_job_that_ends_as_cancelled_ends_no_other(
    code: Code, capsys: pytest.CaptureFixture[str]
) -> None:
    gate, ended = anyio.Event(), list[str]()

    async def other() -> None:
        await gate.wait()
        ended.append("other")

    async with anyio.create_task_group() as group:
        crew = TaskPool(group)
        crew.start_soon(other)
        crew.start_soon(code)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        gate.set()
        crew.start_soon(other)
        crew.close()
    assert ended == ["other", "other"]


async def test_a_callers_cancellation_passes() -> None:
    with anyio.move_on_after(0.01) as scope:
        await call(lambda: anyio.sleep(60))
    assert scope.cancelled_caught
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await call(lambda: anyio.sleep(60))
    task = asyncio.get_running_loop().create_task(call(lambda: asyncio.sleep(60)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_scopes_cancellation_comes_before_what_a_task_group_holds() -> None:
    async def fails_at_its_end() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise BaseExceptionGroup("group", [asyncio.CancelledError(), ValueError("late")])

    async def code() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails_at_its_end())

    with anyio.move_on_after(0.01) as scope:
        await call(code)
    assert scope.cancelled_caught


async def test_a_cancellation_within_a_shield_is_known_as_the_codes_own() -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        with anyio.CancelScope(shield=True):
            with pytest.raises(ResourceError):
                await call(awaits_a_cancelled_task)


@pytest.mark.parametrize("kind", ["model", "resource"])
async def test_a_service_that_ends_by_itself_does_not_return_as_if_it_were_stopped(
    kind: str,
) -> None:
    async def echo(pool: str, asked: Request[Raw], budget: RetryBudget) -> Raw:
        return asked.body

    def ready() -> None:
        assert service.serving
        for task in asyncio.all_tasks():
            if "_end_overdue" in task.get_name():
                task.cancel()

    async with MemoryBroker().connect() as bus:
        service = Service(bus, kind=kind, worker="one", pools=["policy"], capacity=8, handle=echo)
        with pytest.raises(RuntimeFault, match=f"the service of {kind} worker one ended by itself"):
            await service.run(ready=ready)
    assert not service.serving
