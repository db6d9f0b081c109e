"""`connect`, and `NatsBus`: the methods of `gym_runtime.bus.interface.Bus` on one link to a NATS broker.

Each is a few lines over the parts: streams, reader, puller, blobs. A payload that travels by reference
is fetched before it is handed over, so a large message may arrive after smaller ones that were sent later.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import structlog
from anyio.abc import TaskGroup

from gym_runtime import clock
from gym_runtime.bus import addresses, consumers
from gym_runtime.bus.addresses import Addresses
from gym_runtime.bus.blobs import Blobs, is_reference
from gym_runtime.bus.connection import Connection
from gym_runtime.bus.identity import credentials_for, trust
from gym_runtime.bus.inline import Inline
from gym_runtime.bus.interface import Delivery, Headers, Incoming, QueueDepth, Record
from gym_runtime.bus.join import names_file, read_join
from gym_runtime.bus.link import Link, Role
from gym_runtime.bus.puller import Puller
from gym_runtime.bus.slots import Slots, own_or_shared
from gym_runtime.bus.socket import Traffic
from gym_runtime.bus.stream_reader import Reader
from gym_runtime.bus.streams import Streams
from gym_runtime.bus.subjects import Names, is_pattern
from gym_runtime.bus.wire import decode_headers, encode_headers
from gym_runtime.errors import BrokerError, DeadlineExceeded
from gym_runtime.timing import SETTLE_S, TASK_ACK_WAIT_S

log = structlog.get_logger(__name__)

FETCHES = 8
"""Large incoming messages that are fetched at the same time."""


class NatsBus:
    """A `gym_runtime.bus.interface.Bus` over one connection; made by `connect`."""

    def __init__(self, link: Link, names: Names, replicas: int | None, tasks: TaskGroup) -> None:
        self._link = link
        self._names = names
        self._streams = Streams(link, names, replicas)
        self._blobs = Blobs(link, self._streams)
        self._inline = Inline()
        self._tasks = tasks
        self._fetching = anyio.Semaphore(FETCHES, fast_acquire=True)

    @property
    def url(self) -> str:
        """The broker connected to now, without credentials; empty while disconnected."""
        return self._link.url

    @property
    def traffic(self) -> Traffic:
        """Bytes received from the broker and sent to it."""
        return self._link.traffic

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        deadline_s: float,
        headers: Headers | None = None,
        run: str = "",
    ) -> bytes:
        within_s = deadline_s - clock.now()
        if within_s <= 0:
            raise DeadlineExceeded(f"the deadline passed before {subject!r} was asked")
        fits = self._inline.takes_request(len(payload), self._link.max_payload)
        if not fits or is_reference(payload):
            payload = await self._before(deadline_s, subject, self._blobs.put(subject, payload, run=run))
            within_s = deadline_s - clock.now()
        header = encode_headers(headers) if headers else b""
        counted = self._inline.sent(len(payload))
        try:
            answer = await self._link.ask(
                self._names.subject(subject), payload, within_s=within_s, header=header
            )
        finally:
            self._inline.waiting_bytes -= counted
        if is_reference(answer.payload):
            return await self._before(deadline_s, subject, self._blobs.fetch(answer.payload))
        return answer.payload

    def _is_inline(self, payload: bytes) -> bool:
        """Whether a payload travels inline; one that looks like a reference does not, whatever its size."""
        return self._inline.takes(len(payload), self._link.max_payload) and not is_reference(payload)

    async def _before(self, deadline_s: float, subject: str, work: Awaitable[bytes]) -> bytes:
        with anyio.move_on_after(deadline_s - clock.now()):
            return await work
        raise DeadlineExceeded(f"the deadline passed while a large payload for {subject!r} was on its way")

    async def publish(
        self, subject: str, payload: bytes, *, headers: Headers | None = None, run: str = ""
    ) -> None:
        if not self._is_inline(payload):
            payload = await self._blobs.put(subject, payload, run=run)
        header = encode_headers(headers) if headers else b""
        await self._link.send(self._names.subject(subject), payload, header=header)

    @asynccontextmanager
    async def serve(
        self, subject: str, receive: Callable[[Incoming], None], *, queue: str = ""
    ) -> AsyncGenerator[None]:
        """Receive until the context ends; what the broker has sent by then is still received.

        Raises:
            BrokerError: We may not listen there.
        """
        names = self._names

        def listener(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
            incoming = Incoming(
                names.bare(subject), payload, reply.decode(), decode_headers(header) if header else None
            )
            if is_reference(payload):
                self._tasks.start_soon(self._fetch, incoming, receive)
            else:
                receive(incoming)

        sid = self._link.listen(names.pattern(subject), listener, queue=names.subject(queue) if queue else "")
        try:
            await self._link.settle()
            if self._link.denied(sid):
                raise BrokerError(f"the broker does not let these credentials listen on {subject!r}")
            yield
        finally:
            self._link.mute(sid)
            with anyio.move_on_after(SETTLE_S, shield=True):
                await self._link.settle()
            self._link.unlisten(sid)

    async def _fetch(self, incoming: Incoming, receive: Callable[[Incoming], None]) -> None:
        async with self._fetching:
            try:
                payload = await self._blobs.fetch(incoming.payload)
                receive(Incoming(incoming.subject, payload, incoming.reply, incoming.headers))
            except Exception:
                # The boundary to a subscriber, as for small messages; no caller waits for this task.
                log.exception("receive failed", subject=incoming.subject)

    async def _store(
        self, subject: str, payload: bytes, headers: Headers | None = None, *, expect: int | None = None
    ) -> int | None:
        if not self._is_inline(payload):
            payload = await self._blobs.put(subject, payload)
        self._names.stream(subject)
        stored = await self._streams.store(
            self._names.subject(subject), payload, dict(headers or {}), expect=expect
        )
        return None if stored is None else stored.seq

    async def enqueue(
        self, subject: str, payload: bytes, *, headers: Headers | None = None, once: bool = False
    ) -> None:
        await self._store(subject, payload, headers, expect=0 if once else None)

    async def commit(self, subject: str, payload: bytes) -> bool:
        return await self._store(subject, payload, expect=0) is not None

    async def append(self, subject: str, payload: bytes, *, expect: int | None = None) -> int | None:
        return await self._store(subject, payload, expect=expect)

    async def open_queue(self, pattern: str, *, consumer: str, ack_wait_s: float = TASK_ACK_WAIT_S) -> None:
        await consumers.create_shared(self._streams, pattern, consumer, ack_wait_s)

    async def pull(
        self,
        pattern: str,
        *,
        consumer: str,
        slots: int | Slots,
        handle: Callable[[Delivery], Awaitable[None]],
        ack_wait_s: float = TASK_ACK_WAIT_S,
        stop: anyio.Event | None = None,
    ) -> None:
        puller = Puller(
            self._link,
            self._streams,
            self._blobs,
            pattern=pattern,
            consumer=consumer,
            slots=own_or_shared(slots),
            handle=handle,
            ack_wait_s=ack_wait_s,
        )
        await puller.run(stop)

    async def records(self, pattern: str, *, after: int = 0) -> AsyncGenerator[Record]:
        reader = Reader(self._link, self._streams, pattern, after=after)
        try:
            while True:
                kept = await reader.next()
                payload = kept.payload
                if is_reference(payload):
                    payload = await self._blobs.fetch(payload)
                yield Record(self._names.bare(kept.subject), payload, kept.sequence)
        finally:
            reader.close()

    async def latest(self, pattern: str, *, nearest: bool = False) -> list[Record]:
        if nearest:
            self._names.stream(pattern)
            kept = await self._streams.direct(self._names.subject(pattern))
            stored = [] if kept is None else [kept]
        elif is_pattern(pattern):
            reader = Reader(self._link, self._streams, pattern)
            try:
                stored = await reader.newest()
            finally:
                reader.close()
        else:
            self._names.stream(pattern)
            newest = await self._streams.last(self._names.subject(pattern))
            stored = [] if newest is None else [newest]
        return [
            Record(self._names.bare(kept.subject), await self._blobs.fetch(kept.payload), kept.sequence)
            for kept in stored
        ]

    async def forget(self, pattern: str, *, before: int | None = None) -> int:
        self._names.stream(pattern)
        return await self._streams.purge(self._names.pattern(pattern), before=before)

    async def depth(self, consumer: str) -> QueueDepth:
        state = await consumers.look_up(
            self._streams, self._names.stream("task"), self._names.consumer(consumer)
        )
        if state is None:
            return QueueDepth(waiting=0, in_flight=0)
        return QueueDepth(waiting=state.num_pending, in_flight=state.num_ack_pending)

    async def counts(self, pattern: str) -> dict[str, int]:
        self._names.stream(pattern)
        found = await self._streams.counts(self._names.pattern(pattern))
        return {self._names.bare(subject.encode()): count for subject, count in found.items()}

    async def open(self, *, create: bool = True, needed: bool = False) -> None:
        """Create the streams that are missing, as `connect` does; see `Streams.open`."""
        await self._streams.open(create=create, needed=needed)

    async def aclose(self) -> None:
        await self._link.close()


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
    (`gym_runtime.bus.identity`). ``role`` names our inboxes, so that a broker can keep roles apart.

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
    link = Connection(where, inbox=names.inbox(role), name=name, credentials=credentials, tls=tls)
    failure: Exception | None = None
    await link.dial()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.run)
            bus = NatsBus(link, names, replicas, tasks)
            try:
                await bus.open(create=role == "client", needed=streams_needed)
                yield bus
            except Exception as error:  # noqa: BLE001 not handled: raised below, outside the task group
                failure = error
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await link.close()
    if failure is not None:
        # The task group would have made an exception group of it.
        raise failure
