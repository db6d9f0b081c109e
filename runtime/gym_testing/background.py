"""Waiting in tests without sleeping: mailboxes, and tasks that run until a context ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import anyio
from gym_runtime import client

SOON_S = 15.0
"""The limit in seconds of everything that must happen; only a failing test reaches it."""

T = TypeVar("T")

hosting = client.background
"""A task group that is cancelled at the end, and makes no exception group of an error."""


class Mailbox(Generic[T]):
    """A list of items on whose length a test can wait."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._arrived = anyio.Event()

    def put(self, item: T) -> None:
        self.items.append(item)
        arrived, self._arrived = self._arrived, anyio.Event()
        arrived.set()

    async def until(self, count: int) -> list[T]:
        """All items, once there are at least ``count``."""
        with anyio.fail_after(SOON_S):
            while len(self.items) < count:
                await self._arrived.wait()
        return self.items


async def settled(condition: Callable[[], object], *, within_s: float = SOON_S) -> None:
    """Wait for a condition that no event announces, by polling it.

    Raises:
        TimeoutError: it does not hold within ``within_s`` seconds.
    """
    with anyio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110 - for conditions without an event
            await anyio.sleep(0.005)


@asynccontextmanager
async def background(*works: Callable[[], Coroutine[Any, Any, Any]]) -> AsyncGenerator[None]:
    """Run something until the context ends."""
    async with hosting() as tasks:
        for work in works:
            tasks.start_soon(work)
        yield
