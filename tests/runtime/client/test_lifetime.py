"""A context that one task opens and another closes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from gym_runtime import connect
from gym_runtime.client import Lifetime
from gym_runtime.errors import UsageError

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Context:
    """A context with a task group, which can fail in three places."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.broken = anyio.Event()

    @asynccontextmanager
    async def __call__(self, fails: str = "") -> AsyncGenerator[None]:
        async def work() -> None:
            await self.broken.wait()
            raise OSError("in the background")

        if fails == "opening":
            raise OSError("while opening")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            self.events.append("opened")
            try:
                yield
            finally:
                self.events.append("closed")
                tasks.cancel_scope.cancel()
        if fails == "closing":
            raise OSError("while closing")


async def test_opened_by_one_task_and_closed_by_another() -> None:
    context = Context()
    lifetime = Lifetime(context())
    for step in (lifetime.open, lifetime.close):
        async with anyio.create_task_group() as cell:
            cell.start_soon(step)
    assert context.events == ["opened", "closed"]


@pytest.mark.parametrize("where", ["opening", "closing"])
async def test_an_error_is_raised_where_it_happens(where: str) -> None:
    lifetime = Lifetime(Context()(where))
    if where == "closing":
        await lifetime.open()
    with pytest.raises(OSError, match=f"while {where}"):
        await (lifetime.open() if where == "opening" else lifetime.close())


async def test_an_error_in_the_background_ends_the_context_and_is_raised_at_its_close() -> None:
    context = Context()
    lifetime = Lifetime(context())
    await lifetime.open()
    context.broken.set()
    with pytest.raises(ExceptionGroup) as caught:
        await lifetime.close()
    assert caught.group_contains(OSError, match="in the background")


async def test_a_client_that_is_not_open_says_so() -> None:
    gym = connect("nats://127.0.0.1:9", prefix="none")
    with pytest.raises(UsageError, match="the client is not open"):
        await gym.workers()
    with pytest.raises(UsageError, match="say which system"):
        connect()
    await gym.close()  # what was never opened is closed already
