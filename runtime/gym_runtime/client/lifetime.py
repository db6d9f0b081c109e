"""A context that one task opens and another one closes, as the cells of a notebook do."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio


class Lifetime:
    """Holds a context open in a task of its own, from `open` to `close`.

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
        # Otherwise the task would hold the context open for ever.
        except asyncio.CancelledError:
            self._closing.set()
            raise
        # It ended while it was entered: `close` raises why.
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
