"""A client for synchronous code: trainers, workers of a DataLoader, plain scripts.

Its event loop runs in a thread, so it also works inside of another event loop, and from several threads at
once. A process that was forked with it, or to which it was sent by pickle, connects again at the first use:
the thread and the connection belong to the process that made them.
"""

from __future__ import annotations

import atexit
import inspect
import os
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    contextmanager,
    suppress,
)
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar, Unpack
from weakref import WeakSet

from anyio.from_thread import start_blocking_portal

from gym_runtime.client.client import Client
from gym_runtime.client.connecting import connect
from gym_runtime.client.row_sources import AnyRow
from gym_runtime.client.session import EnvironmentSession, Observation, Said
from gym_runtime.client.standing_run import StandingRun
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import ConnectionLost, UsageError
from gym_runtime.messages.alarms import Alarm
from gym_runtime.messages.images import Content
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_keywords import SamplingKeywords

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_END: Any = object()


class _Address(NamedTuple):
    """Where another process finds the system."""

    urls: tuple[str, ...]
    prefix: str
    roles: dict[str, str]


class _Connection:
    """One process's connection, and the thread with the event loop in which it lives.

    The thread is a daemon, so that a program that forgets to close the client still ends.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.pid = os.getpid()
        self._closed = False
        self._held: set[ExitStack] = set()
        self._reading: set[AsyncGenerator[Any]] = set()
        with ExitStack() as stack:
            options = {"use_uvloop": sys.platform != "win32"}
            thread = start_blocking_portal(backend_options=options, name="gym-runtime client")
            self._portal = stack.enter_context(thread)
            self._loop_thread = self._portal.call(threading.get_ident)
            self.call(client.open)
            # Only now: a thread without a connection ends here.
            self._thread = stack.pop_all()
        # A process may end without closing: the system that it started would then stop less orderly.
        atexit.register(self.close)
        _connections.add(self)

    def call(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """The result of a coroutine function; if the waiting is interrupted, the coroutine is cancelled.

        Raises:
            UsageError: the client is closed; or the caller is in its own thread, which would wait for itself.
        """
        if self._closed:
            raise UsageError("the client is closed")
        if threading.get_ident() == self._loop_thread:
            raise UsageError(
                "rows that are no list are read in the client's own thread, where its methods cannot be "
                "called: make these rows with another client, or before"
            )
        future = self._portal.start_task_soon(work, *arguments)
        try:
            return future.result()
        # Also for Ctrl-C, which reaches the waiting thread and not the loop.
        except BaseException:
            future.cancel()
            raise

    def read(self, results: AsyncGenerator[T]) -> Generator[T]:
        """The items of an async generator; leaving this generator early closes that one."""

        async def following() -> T:
            return await anext(results, _END)

        self._reading.add(results)
        try:
            while (item := self.call(following)) is not _END:
                yield item
        finally:
            if not self._closed:
                self._reading.discard(results)
                if threading.get_ident() != self._loop_thread:
                    self.call(results.aclose)
                # Garbage collection may run this in the loop's thread, which must not wait for itself.
                else:
                    self.client.driver.tasks.start_soon(results.aclose)

    @contextmanager
    def held(self, context: AbstractAsyncContextManager[T]) -> Generator[T]:
        """An async context as a plain one.

        If it has not ended before, it ends with the connection, by an exception: its body is not over, and
        ends with an error, too.
        """
        stack = ExitStack()
        # One task enters and leaves it.
        value = stack.enter_context(self._portal.wrap_async_context_manager(context))
        self._held.add(stack)
        try:
            with stack:
                yield value
                if stack not in self._held:
                    raise ConnectionLost("the client was closed before this was complete")
        finally:
            self._held.discard(stack)

    def close(self) -> None:
        # Otherwise the interpreter would keep the client until its end.
        atexit.unregister(self.close)
        # A forked child has no such thread: to stop it would wait for ever.
        if self.pid != os.getpid():
            return
        with self._thread:
            try:
                # A copy: each one that ends removes itself.
                for stack in list(self._held):
                    self._held.discard(stack)
                    closed = ConnectionLost("the client was closed meanwhile")
                    with suppress(ConnectionLost):
                        stack.__exit__(ConnectionLost, closed, None)
                self.call(self.client.close)
            finally:
                self._closed = True
                # What other threads still wait for is cancelled; else the thread would wait for it.
                self._portal.call(self._portal.stop, True)

    def inherit(self) -> list[ExitStack]:
        """In a forked child, which has no such thread: end without waiting for it; what must be kept."""
        self._closed = True
        # They are ended by the parent alone: a child that leaves a ``with`` must find nothing to end.
        kept = [stack.pop_all() for stack in self._held]
        self._held.clear()
        return kept


_connections: WeakSet[_Connection] = WeakSet()
_inherited: list[tuple[_Connection, list[ExitStack]]] = []
"""What a forked child has of its parent's clients. It is kept: finalizing it would close descriptors, and
remove wake-ups, that both processes share."""


def _inherit() -> None:
    _inherited.extend((connection, connection.inherit()) for connection in list(_connections))
    _connections.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_inherit)


class SyncRun:
    """`StandingRun` with methods that block; several threads may call them."""

    def __init__(self, connection: _Connection, run: StandingRun) -> None:
        self.run = run.run
        self._connection = connection
        self._standing = run

    def rollout(self, row: AnyRow, **sampling: Unpack[SamplingKeywords]) -> RolloutRecord:
        """As `StandingRun.rollout`."""
        return self._connection.call(partial(self._standing.rollout, row, **sampling))


class SyncSession:
    """`EnvironmentSession` with methods that block.

    Attributes:
        environment, tools, observation: as those of `EnvironmentSession`.
    """

    def __init__(self, connection: _Connection, session: EnvironmentSession) -> None:
        self.environment = session.environment
        self.tools = session.tools
        self.observation = session.observation
        self._connection = connection
        self._session = session

    def call(self, name: str, arguments: str | Mapping[str, Any] = "{}") -> Content:
        """As `EnvironmentSession.call`."""
        return self._connection.call(self._session.call, name, arguments)

    def step(self, response: Said) -> Observation:
        """As `EnvironmentSession.step`."""
        return self._connection.call(self._session.step, response)

    def verify(self, response: Said) -> Verdict:
        """As `EnvironmentSession.verify`."""
        return self._connection.call(self._session.verify, response)


# -- methods that block, made of those of `Client` --------------------------------------------------------


def _waited(
    method: Callable[Concatenate[Client, P], Awaitable[T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """A coroutine, waited for."""

    def wait(self: SyncClient, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return self.call(method, *arguments, **keywords)

    return _as(method, wait, str(inspect.signature(method).return_annotation))


def _looped(
    method: Callable[Concatenate[Client, P], AsyncGenerator[T]],
) -> Callable[Concatenate[SyncClient, P], Generator[T]]:
    """An async generator, to be looped over."""

    def loop(self: SyncClient, /, *arguments: P.args, **keywords: P.kwargs) -> Generator[T]:
        connection = self.connection()
        return connection.read(method(connection.client, *arguments, **keywords))

    return _as(method, loop, str(inspect.signature(method).return_annotation).removeprefix("Async"))


def _held(
    method: Callable[Concatenate[Client, P], AbstractAsyncContextManager[T]],
    of: Callable[[_Connection, T], R],
) -> Callable[Concatenate[SyncClient, P], AbstractContextManager[R]]:
    """An async context, entered and left by ``with``; ``of`` makes what blocks of what it yields."""

    @contextmanager
    def hold(self: SyncClient, /, *arguments: P.args, **keywords: P.kwargs) -> Generator[R]:
        connection = self.connection()
        with connection.held(method(connection.client, *arguments, **keywords)) as value:
            yield of(connection, value)

    return _as(method, hold, f"AbstractContextManager[{of.__name__ if isinstance(of, type) else None}]")


Q = ParamSpec("Q")


def _as(origin: Callable[..., Any], blocking: Callable[Q, R], returned: str) -> Callable[Q, R]:
    """Give a function that blocks the name and the parameters of its origin, for help and tools."""
    blocking.__name__, blocking.__doc__ = origin.__name__, f"As `Client.{origin.__name__}`."
    # `inspect` follows `__wrapped__`, which `contextmanager` sets, past the signature below.
    vars(blocking).pop("__wrapped__", None)
    vars(blocking)["__signature__"] = inspect.signature(origin).replace(return_annotation=returned)
    return blocking


def _nothing(_: _Connection, value: None) -> None:
    return value


class SyncClient:
    """`Client` with methods that block. Made by `connect_sync`; open until `close`, or until ``with`` ends.

    Methods may be called by several threads. Rows that are no list are read in the client's own thread.
    """

    rollouts = _looped(Client.rollouts)
    fork = _looped(Client.fork)
    groups = _looped(Client.groups)
    publish = _waited(Client.publish)
    collect = _looped(Client.collect)
    standing_run = _held(Client.standing_run, SyncRun)
    session = _held(Client.session, SyncSession)
    verify = _waited(Client.verify)
    cancel = _waited(Client.cancel)
    pause = _waited(Client.pause)
    resume = _waited(Client.resume)
    set_run = _waited(Client.set_run)
    retry_failed = _waited(Client.retry_failed)
    control = _waited(Client.control)
    update_weights = _waited(Client.update_weights)
    weights_paused = _held(Client.weights_paused, _nothing)
    workers = _waited(Client.workers)
    status = _waited(Client.status)

    def __init__(self, client: Client) -> None:
        self._lock = threading.Lock()
        self._open: _Connection | None = _Connection(client)
        self._address: _Address | None = _Address(client.urls, client.prefix, client.roles)

    @property
    def urls(self) -> tuple[str, ...]:
        """The broker's, for another client of this system; empty when this one is closed."""
        return self._address.urls if self._address is not None else ()

    @property
    def alarms(self) -> Sequence[Alarm]:
        """As `Client.alarms`; of this process's connection."""
        return self.connection().client.alarms

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, _Address | None]:
        # A lock and a thread cannot be pickled; the address is all that another process needs.
        return {"address": self._address}

    def __setstate__(self, state: dict[str, _Address | None]) -> None:
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
        connection = self.connection()
        return connection.call(partial(method, **keywords), connection.client, *arguments)

    def connection(self) -> _Connection:
        """This process's connection; made now if the client came from another process.

        Raises:
            UsageError: the client is closed.
        """
        # Under the lock, or two threads would both connect.
        with self._lock:
            if self._open is not None and self._open.pid != os.getpid():
                self._open = None
            if self._open is None:
                if self._address is None:
                    raise UsageError("the client is closed; connect_sync(...) makes another one")
                client = connect(self._address.urls, prefix=self._address.prefix)
                client.roles.update(self._address.roles)
                self._open = _Connection(client)
            return self._open


def _opened(connect: Callable[P, Client]) -> Callable[P, SyncClient]:
    def connect_sync(*arguments: P.args, **keywords: P.kwargs) -> SyncClient:
        """A client for synchronous code, connected when this returns; the arguments are those of `connect`.

        Raises:
            UsageError, BrokerError: the message says what is missing.
        """
        return SyncClient(connect(*arguments, **keywords))

    about = connect_sync.__doc__
    named = _as(connect, connect_sync, "SyncClient")
    named.__name__, named.__doc__ = "connect_sync", about
    return named


connect_sync = _opened(connect)
