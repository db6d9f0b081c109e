"""A script of faults, and a bus in the background."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup
from gym_testing.memory import Fate, Passing


@asynccontextmanager
async def background(*works: Callable[[], Awaitable[Any]]) -> AsyncGenerator[TaskGroup]:
    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(work)
        yield tasks
        tasks.cancel_scope.cancel()


class Script:
    """A policy: the fates of the messages of some kinds, one after the other, then none."""

    def __init__(self, **fates: list[Fate]) -> None:
        self._fates = fates
        self.seen: list[Passing] = []

    def fate(self, passing: Passing, dice: random.Random) -> Fate:
        self.seen.append(passing)
        waiting = self._fates.get(passing.kind)
        return waiting.pop(0) if waiting else Fate()
