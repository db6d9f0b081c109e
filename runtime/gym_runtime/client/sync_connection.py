"""One process's connection of a `SyncClient`, and the thread that it lives in."""

from __future__ import annotations

import atexit
import os
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from typing import NamedTuple, TypeVar

from gym_runtime.client.client import Client
from gym_runtime.client.loop_thread import LoopThread

T = TypeVar("T")


class Address(NamedTuple):
    """Where another process finds the system."""

    urls: tuple[str, ...]
    prefix: str
    roles: dict[str, str]


class Connection:
    """One process's connection, and the thread that it lives in."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.thread = LoopThread()
        self._held: set[ExitStack] = set()
        try:
            self.thread.call(client.open)
        except BaseException:
            self.thread.stop()
            raise
        # A process may end without closing: the system that it started would then stop less orderly.
        atexit.register(self.close)

    @contextmanager
    def held(self, context: AbstractAsyncContextManager[T]) -> Generator[T]:
        """An async context as a plain one, which ends with the connection if it has not ended before."""
        stack = ExitStack()
        value = stack.enter_context(self.thread.held(context))
        self._held.add(stack)
        try:
            with stack:
                yield value
        finally:
            self._held.discard(stack)

    def close(self) -> None:
        atexit.unregister(self.close)
        if self.thread.pid == os.getpid():
            try:
                for stack in list(self._held):
                    stack.close()
                self.thread.call(self.client.close)
            finally:
                self.thread.stop()


inherited: list[Connection] = []
"""What a forked child has of its parent's clients. It is kept: finalizing it would close descriptors, and
remove wake-ups, that both processes share."""
