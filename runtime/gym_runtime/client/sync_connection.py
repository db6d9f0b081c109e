"""One process's connection of a `SyncClient`, and the thread that it lives in."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from gym_runtime.client.client import Client
from gym_runtime.client.connecting import rejoin
from gym_runtime.client.loop_thread import LoopThread
from gym_runtime.errors import UsageError

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
        # The thread would outlive a connection that was not made.
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
        # Otherwise the interpreter would keep the client until its end.
        atexit.unregister(self.close)
        # A forked child has no such thread: to stop it would wait for ever.
        if self.thread.pid == os.getpid():
            try:
                # A copy: each one that ends removes itself.
                for stack in list(self._held):
                    stack.close()
                self.thread.call(self.client.close)
            finally:
                self.thread.stop()


inherited: list[Connection] = []
"""What a forked child has of its parent's clients. It is kept: finalizing it would close descriptors, and
remove wake-ups, that both processes share."""


class SharedConnection:
    """A connection that threads share; a process that got it by fork or pickle makes one of its own."""

    def __init__(self, client: Client) -> None:
        self._lock = threading.Lock()
        self._open: Connection | None = Connection(client)
        self._address: Address | None = Address(client.urls, client.prefix, client.roles)

    @property
    def urls(self) -> tuple[str, ...]:
        """The broker's, for another client of this system; empty when this one is closed."""
        return self._address.urls if self._address is not None else ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Address | None]:
        # A lock and a thread cannot be pickled; the address is all that another process needs.
        return {"address": self._address}

    def __setstate__(self, state: dict[str, Address | None]) -> None:
        self._lock, self._address, self._open = threading.Lock(), state["address"], None

    def close(self) -> None:
        """Leave the system, and stop it if this client started it. Closing twice is allowed."""
        with self._lock:
            # Under the lock only the exchange; closing may wait for long, and others would wait for it.
            opened, self._open, self._address = self._open, None, None
        if opened is not None:
            opened.close()

    def call(self, method: Callable[..., Awaitable[T]], *arguments: Any, **keywords: Any) -> T:
        """The result of any method of `Client`: ``gym.call(Client.runs)``."""
        here = self._here()
        return here.thread.call(partial(method, **keywords), here.client, *arguments)

    def _here(self) -> Connection:
        """This process's connection; made now if the client came from another process.

        Raises:
            UsageError: the client is closed.
        """
        # Under the lock, or two threads would both connect.
        with self._lock:
            if self._open is not None and self._open.thread.pid != os.getpid():
                inherited.append(self._open)
                self._open = None
            if self._open is None:
                if self._address is None:
                    raise UsageError("the client is closed; connect_sync(...) makes another one")
                self._open = Connection(rejoin(*self._address))
            return self._open
