"""Work beside the reader of its results; task groups and contexts that outlive the task that began them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from gym_runtime.errors import ConnectionLost, leaf

READ_AHEAD = 256
T = TypeVar("T")


class ResultStream(Generic[T]):
    """Results on their way from the work that sends them to one reader; at most `READ_AHEAD` wait.

    A queue and two events, not a memory object stream of anyio: that costs ten times as much per result.
    """

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._arrived = anyio.Event()
        self._taken = anyio.Event()
        self._scope = anyio.CancelScope()
        self._ended = False
        self._failure: BaseException | None = None

    async def send(self, result: T) -> None:
        """Hand over a result; waits while `READ_AHEAD` results are not read."""
        # One sender only: a second one would replace the event that the first waits for.
        while len(self._waiting) >= READ_AHEAD:
            self._taken = anyio.Event()
            await self._taken.wait()
        self._waiting.append(result)
        self._arrived.set()

    async def results(
        self,
        tasks: TaskGroup,
        work: Callable[[], Coroutine[Any, Any, None]],
        read: Callable[[T], None] = lambda result: None,
    ) -> AsyncGenerator[T]:
        """Start the work; yields what it sends, in order. Leaving early cancels it; its error is raised here.

        Args:
            tasks: outlives the reader. The work is no task of this generator: a generator may be dropped
                half-way, in another task than it began in, and must not own a task group.
            read: called with each result before it is yielded.
        """
        tasks.start_soon(self._fill, work)
        try:
            while True:
                while self._waiting:
                    result = self._waiting.popleft()
                    self._taken.set()
                    read(result)
                    yield result
                    # Else a slow reader could not be cancelled, nor could others run, before all were read.
                    await anyio.lowlevel.checkpoint()
                if self._ended:
                    break
                # No await since the queue was seen empty, so no arrival is lost.
                self._arrived = anyio.Event()
                await self._arrived.wait()
            if self._failure is not None:
                raise self._failure
        finally:
            self._scope.cancel()

    async def _fill(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            with self._scope:
                await work()
        except Exception as error:  # noqa: BLE001 - not handled: raised in the reader's task
            self._failure = leaf(error)
        except anyio.get_cancelled_exc_class():
            if not self._scope.cancel_called:
                self._failure = ConnectionLost("the connection was closed before this was complete")
            raise
        finally:
            self._ended = True
            self._arrived.set()


class Lifetime:
    """Holds a context open in its own task, from `open` to `close`.

    A context with a task group must be left by the task that entered it.
    """

    def __init__(self, context: AbstractAsyncContextManager[Any]) -> None:
        self._context = context
        self._opened = anyio.Event()
        self._closing = anyio.Event()
        self._closed = anyio.Event()
        self._failure: Exception | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Enter the context.

        Raises:
            Exception: what the context raises.
        """
        # A notebook has no task group that outlives a cell, so this task is a root; the event loop holds it
        # only weakly, hence the reference.
        self._task = asyncio.get_running_loop().create_task(self._hold())
        try:
            await self._opened.wait()
        # A cancelled caller: otherwise the task would hold the context open for ever.
        except asyncio.CancelledError:
            self._closing.set()
            raise
        # Opening failed; `close` raises the cause.
        if self._closed.is_set():
            await self.close()

    async def close(self) -> None:
        """Leave the context, and return when that is done.

        Raises:
            Exception: what the context raises, or what ended it before.
        """
        self._closing.set()
        await self._closed.wait()
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Have the context left, without waiting for it; tasks within the context may call it."""
        self._closing.set()

    async def _hold(self) -> None:
        try:
            async with self._context:
                self._opened.set()
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - not handled: raised by `open` or `close`
            self._failure = error
        finally:
            # Before `_opened`, so that `open` sees it when it wakes up.
            self._closed.set()
            self._opened.set()


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
    # Outside of the handler: else its traceback would show the group as the context.
    if failure is not None:
        raise failure
