"""An event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup
from anyio.from_thread import BlockingPortal

from gym_runtime.errors import UsageError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads.

    The thread is a daemon, so that a program that forgets to stop it still ends.

    Attributes:
        pid: the process whose thread it is: a forked child has no such thread.
        stopped: nothing more is run.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.stopped = False
        self._ready = threading.Event()
        self._portal: BlockingPortal | None = None
        self._tasks: TaskGroup | None = None
        self._thread = threading.Thread(target=self._run, name="gym-runtime client", daemon=True)
        self._thread.start()
        self._ready.wait()

    @property
    def portal(self) -> BlockingPortal:
        assert self._portal is not None, "the thread is ready before its maker goes on"
        return self._portal

    def call(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """The result of a coroutine function; if the waiting is interrupted, the coroutine is cancelled.

        Raises:
            UsageError: the thread was stopped.
        """
        if self.stopped:
            raise UsageError("the client is closed")
        future = self.portal.start_task_soon(work, *arguments)
        try:
            return future.result()
        # Also for Ctrl-C, which reaches the waiting thread and not the loop.
        except BaseException:
            future.cancel()
            raise

    def finish(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Do what a caller leaves behind; garbage collection may call this in the loop's own thread."""
        if self.stopped:
            return
        if threading.current_thread() is not self._thread:
            self.call(work)
        # To wait here would wait for this very thread.
        elif self._tasks is not None:
            self._tasks.start_soon(work)

    def held(self, context: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """An async context as a plain one; one task enters and leaves it."""
        return self.portal.wrap_async_context_manager(context)

    def stop(self) -> None:
        """Stop the loop, cancel what runs there, and wait for its thread."""
        self.stopped = True
        # Not `call`: the loop ends before it could answer.
        self.portal.start_task_soon(self.portal.stop, True)
        self._thread.join()

    def _run(self) -> None:
        anyio.run(self._serve, backend_options={"use_uvloop": sys.platform != "win32"})

    async def _serve(self) -> None:
        async with anyio.create_task_group() as self._tasks, BlockingPortal() as self._portal:
            self._ready.set()
            await self._portal.sleep_until_stopped()
