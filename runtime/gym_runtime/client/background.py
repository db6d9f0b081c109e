"""Work that goes on beside the one who reads its results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from gym_runtime.errors import leaf

READ_AHEAD = 256
T = TypeVar("T")


class Stream(Generic[T]):
    """Results on their way from the work that brings them to the one who reads them."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[T](READ_AHEAD)
        self._scope = anyio.CancelScope()
        self._failure: BaseException | None = None

    async def send(self, result: T) -> None:
        await self._send.send(result)

    async def fill(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the work until it ends or `close` is called; what it raises is raised in the reader."""
        with self._send:
            try:
                with self._scope:
                    await work()
            except Exception as error:  # noqa: BLE001 - not handled: raised in the reader's task
                self._failure = leaf(error)

    async def received(self) -> AsyncGenerator[T]:
        async for result in self._receive:
            yield result
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Nobody reads any more."""
        # The work first: it must not find its stream closed.
        self._scope.cancel()
        self._receive.close()


@asynccontextmanager
async def background(*, cancel: bool = True) -> AsyncGenerator[TaskGroup]:
    """A task group that ends with its body, and wraps no error in an exception group."""
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
            if cancel:
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        failure = leaf(group)
    if failure is not None:
        raise failure
