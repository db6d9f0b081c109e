"""`connect` joins a NATS broker, or one of a cluster, and makes a `NatsBus` of it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio

from gym_runtime.bus import addresses
from gym_runtime.bus.addresses import Addresses
from gym_runtime.bus.connection import Connection
from gym_runtime.bus.identity import credentials_for, trust
from gym_runtime.bus.join import names_file, read_join
from gym_runtime.bus.link import Role
from gym_runtime.bus.nats_bus import NatsBus
from gym_runtime.bus.subjects import Names


def connect(
    url: str | Sequence[str],
    *,
    prefix: str = "gym",
    name: str = "gym-runtime",
    role: Role = "client",
    credentials: Path | None = None,
    tls: ssl.SSLContext | None = None,
    replicas: int | None = None,
    streams_needed: bool = False,
) -> AbstractAsyncContextManager[NatsBus]:
    """Connect to a broker, or to one of a cluster; ``async with connect(url) as bus``.

    In place of a URL the path of a join file (`gym_runtime.bus.join`) says all that follows.
    User and password, or a token, stand in the URL; ``credentials`` is a file with an NKey seed or a NATS
    ``.creds`` file. It and ``tls`` come from the environment where they are not given
    (`gym_runtime.bus.identity`). ``role`` names our inboxes, so that a broker can keep roles apart; it
    also chooses the key where a file has several.

    A client creates the streams that are missing; a worker does so when it needs one. Each is kept
    ``replicas`` times, by default three in a cluster and once on a single broker; existing ones keep their
    operator's settings. With ``streams_needed`` a worker that finds none and may create none fails, with an
    error that is ``silent``. Leaving the context sends what is buffered and disconnects. Like a task group,
    of which it holds one, it is left by the task that entered it, and after what was entered later.

    Raises:
        BrokerError: Within five seconds: unreachable, bad credentials, no JetStream, or it takes messages
            that are too small. The message says what to do.
        UsageError: a URL or the prefix is not valid, or a file cannot be used.
    """
    names = Names(prefix)
    given = [url] if isinstance(url, str) else list(url)
    if len(given) == 1 and names_file(given[0]):
        join = read_join(Path(given[0]))
        # The file itself serves as the credentials: its key stands in the same block as in .creds files.
        where, credentials, tls = addresses.parse(join.urls), Path(given[0]), join.trust()
    else:
        where = addresses.parse(url)
        credentials = credentials or credentials_for(where)
    return _connected(where, names, name, role, credentials, tls or trust(), replicas, streams_needed)


@asynccontextmanager
async def _connected(
    where: Addresses,
    names: Names,
    name: str,
    role: Role,
    credentials: Path | None,
    tls: ssl.SSLContext | None,
    replicas: int | None,
    streams_needed: bool,
) -> AsyncGenerator[NatsBus]:
    # Agents and clients read and write streams; what answers calls may be near those that ask it.
    far = role in ("agent", "client")
    link = Connection(
        where, inbox=names.inbox(role), name=name, credentials=credentials, role=role, tls=tls, far=far
    )
    failure: Exception | None = None
    await link.dial()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.run)
            if far:
                tasks.start_soon(link.measure_far)
            bus = NatsBus(link, names, replicas, tasks, patient=role != "client")
            try:
                # At a secured broker only clients may create streams.
                await bus.open(create=role == "client", needed=streams_needed)
                yield bus
            except Exception as error:  # noqa: BLE001 not handled: raised below, outside the task group
                failure = error
            # `run` keeps the connection for ever, and would keep the group.
            tasks.cancel_scope.cancel()
    finally:
        # A cancelled caller's last messages are sent, too; `close` has its own limit.
        with anyio.CancelScope(shield=True):
            await link.close()
    if failure is not None:
        # The task group would have made an exception group of it.
        raise failure
