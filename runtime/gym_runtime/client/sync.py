"""A client for synchronous code: trainers, workers of a DataLoader, plain scripts.

Its event loop runs in a thread of its own, so it also works inside of another event loop, and from several
threads at once. A process that was forked with it, or to which it was sent by pickle, connects anew at the
first use: the thread and the connection belong to the process that made them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

from gym_runtime.client.client import Client
from gym_runtime.client.connecting import connect, rejoin
from gym_runtime.client.publishing import IN_FLIGHT
from gym_runtime.client.rollouts import POLICY
from gym_runtime.client.row_sources import AnyRow
from gym_runtime.client.sessions import Said
from gym_runtime.client.status import Status
from gym_runtime.client.sync_calls import SyncRun, SyncSession, read
from gym_runtime.client.sync_connection import Address, Connection, inherited
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import UsageError
from gym_runtime.messages.calls import Control, ControlAnswer
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.rollout.groups import Group, GroupPolicy
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.timing import CONTROL_S
from gym_runtime.workers.adapter import ModelSettings

T = TypeVar("T")


class SyncClient:
    """`Client` with methods that block. Made by `connect_sync`; open until `close`, or until ``with`` ends.

    Methods may be called by several threads. Rows that are no list are read in the client's own thread.
    """

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
        return {"address": self._address}

    def __setstate__(self, state: dict[str, Address | None]) -> None:
        self._lock, self._address, self._open = threading.Lock(), state["address"], None

    def close(self) -> None:
        """Leave the system, and stop it if this client started it. Closing twice is allowed."""
        with self._lock:
            opened, self._open, self._address = self._open, None, None
        if opened is not None:
            opened.close()

    def call(self, method: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """The result of any method of `Client`: ``gym.call(Client.runs)``."""
        here = self._here()
        return here.thread.call(method, here.client, *arguments)

    # -- rollouts -------------------------------------------------------------------------------------

    def rollouts(
        self,
        rows: Iterable[AnyRow],
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        in_flight: int = IN_FLIGHT,
        ordered: bool = False,
        **keywords: Any,
    ) -> Generator[RolloutRecord]:
        """As `Client.rollouts`."""
        here = self._here()
        made = here.client.rollouts(
            rows, settings, environment=environment, in_flight=in_flight, ordered=ordered, **keywords
        )
        return read(here.thread, made)

    def groups(
        self,
        rows: Iterable[AnyRow],
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        on_failure: GroupPolicy = "replace",
        in_flight: int = IN_FLIGHT,
        ordered: bool = False,
        keys: Iterable[Any] | None = None,
        **keywords: Any,
    ) -> Generator[Group]:
        """As `Client.groups`."""
        here = self._here()
        made = here.client.groups(
            rows,
            settings,
            environment=environment,
            on_failure=on_failure,
            in_flight=in_flight,
            ordered=ordered,
            keys=keys,
            **keywords,
        )
        return read(here.thread, made)

    @contextmanager
    def standing_run(
        self, settings: RolloutSettings | None = None, *, environment: str | None = None, **keywords: Any
    ) -> Generator[SyncRun]:
        """As `Client.standing_run`."""
        here = self._here()
        context = here.client.standing_run(settings, environment=environment, **keywords)
        with here.held(context) as run:
            yield SyncRun(here.thread, run)

    # -- sessions -------------------------------------------------------------------------------------

    @contextmanager
    def session(
        self, row: AnyRow, *, environment: str | None = None, timeout_s: float | None = None
    ) -> Generator[SyncSession]:
        """As `Client.session`."""
        here = self._here()
        context = here.client.session(row, environment=environment, timeout_s=timeout_s)
        with here.held(context) as session:
            yield SyncSession(here.thread, session)

    def verify(
        self, row: AnyRow, response: Said, *, environment: str | None = None, timeout_s: float | None = None
    ) -> Verdict:
        """As `Client.verify`."""

        async def verify(client: Client) -> Verdict:
            return await client.verify(row, response, environment=environment, timeout_s=timeout_s)

        return self.call(verify)

    # -- weights, and looking around ------------------------------------------------------------------

    def control(
        self, command: Control, *, model: str = POLICY, limit_s: float = CONTROL_S
    ) -> dict[str, ControlAnswer]:
        """As `Client.control`."""

        async def control(client: Client) -> dict[str, ControlAnswer]:
            return await client.control(command, model=model, limit_s=limit_s)

        return self.call(control)

    def update_weights(
        self, path: str | PathLike[str], version: str, *, model: str = POLICY, limit_s: float = CONTROL_S
    ) -> None:
        """As `Client.update_weights`."""

        async def update(client: Client) -> None:
            await client.update_weights(path, version, model=model, limit_s=limit_s)

        self.call(update)

    def weights_paused(
        self, version: str, *, model: str = POLICY, limit_s: float = CONTROL_S
    ) -> AbstractContextManager[None]:
        """As `Client.weights_paused`."""
        here = self._here()
        return here.held(here.client.weights_paused(version, model=model, limit_s=limit_s))

    def workers(self) -> list[Heartbeat]:
        """As `Client.workers`."""
        return self.call(Client.workers)

    def status(self) -> Status:
        """As `Client.status`."""
        return self.call(Client.status)

    def _here(self) -> Connection:
        """This process's connection; made now if the client came from another process.

        Raises:
            UsageError: the client is closed.
        """
        with self._lock:
            if self._open is not None and self._open.thread.pid != os.getpid():
                inherited.append(self._open)
                self._open = None
            if self._open is None:
                if self._address is None:
                    raise UsageError("the client is closed; connect_sync(...) makes another one")
                self._open = Connection(rejoin(*self._address))
            return self._open


def connect_sync(
    nats: str | Sequence[str] | None = None,
    *,
    model: str | ModelSettings | None = None,
    roles: Mapping[str, str | ModelSettings] | None = None,
    environments: str | Sequence[str] = (),
    agents: str | Sequence[str] = (),
    workers: int = 1,
    concurrency: int = 1024,
    prefix: str = "gym",
) -> SyncClient:
    """A client for synchronous code, connected when this returns; the arguments are those of `connect`.

    Raises:
        UsageError, BrokerError: the message says what is missing.
    """
    return SyncClient(
        connect(
            nats,
            model=model,
            roles=roles,
            environments=environments,
            agents=agents,
            workers=workers,
            concurrency=concurrency,
            prefix=prefix,
        )
    )
