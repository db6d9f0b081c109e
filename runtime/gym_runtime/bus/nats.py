"""`connect` joins a NATS broker, or one of a cluster, and makes a `NatsBus` of it.

`NatsBus` has the methods of `gym_runtime.bus.interface.Bus`, each a few lines over the parts: streams,
reader, puller, blobs. A payload that travels by reference is fetched before it is handed over,
so a large message may arrive after smaller ones that were sent later.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from gym_runtime import clock
from gym_runtime.bus.blobs import Blobs, Damaged, Inline, is_reference
from gym_runtime.bus.identity import credentials_for, names_file, parse, read_join, trust
from gym_runtime.bus.interface import Delivery, Headers, Incoming, QueueDepth, Record, Stop
from gym_runtime.bus.jetstream_answers import Kept, is_of_jetstream
from gym_runtime.bus.link import Link, Role
from gym_runtime.bus.pull import Rank, Slots
from gym_runtime.bus.puller import Puller, open_queue
from gym_runtime.bus.receiving import Traffic
from gym_runtime.bus.stream_reader import Reader
from gym_runtime.bus.streams import NO_CONSUMER, Streams
from gym_runtime.bus.wire import NO_HEADERS, Names, checked, is_pattern
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded, TransportError
from gym_runtime.logs import logger
from gym_runtime.messages.stored_records import leave_out
from gym_runtime.timing import TASK_ACK_WAIT_S

SETTLE_S = 2.0
"""How long an ended subscription waits for the messages that the broker had already sent to it."""

log = logger()

FETCHES = 8
"""Large incoming messages that are fetched at the same time."""


class NatsBus:
    """A `gym_runtime.bus.interface.Bus` over one connection; made by `connect`."""

    def __init__(self, link: Link, streams: Streams, tasks: TaskGroup) -> None:
        self._link, self._streams = link, streams
        self._names = streams.names
        self._blobs = Blobs(link, streams)
        self._inline = Inline()
        self._tasks = tasks
        # `fast_acquire`: no turn of the event loop is spent where a place is free.
        self._fetching = anyio.Semaphore(FETCHES, fast_acquire=True)

    @property
    def url(self) -> str:
        """The broker connected to now, without credentials; empty while disconnected."""
        return self._link.url

    @property
    def traffic(self) -> Traffic:
        """Bytes received from the broker and sent to it."""
        return self._link.traffic

    @property
    def round_trip_s(self) -> float:
        """How long pings to the broker take, in seconds; 0 while that is not known."""
        return self._link.round_trips.seconds

    @property
    def connected_s(self) -> float:
        return self._link.connected_s

    @property
    def crowded(self) -> bool:
        return self._link.sending.crowded

    @property
    def refused(self) -> str:
        return self._streams.refused

    async def stores(self) -> None:
        await self._streams.stores()

    async def ease(self, deadline_s: float) -> None:
        with anyio.move_on_after(deadline_s - clock.monotonic()):
            await self._link.sending.ease()

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        deadline_s: float,
        headers: Headers | None = None,
        run: str = "",
        stop: Stop | None = None,
    ) -> bytes:
        within_s = deadline_s - clock.monotonic()
        if within_s <= 0:
            raise DeadlineExceeded(f"the deadline passed before {subject!r} was asked")
        fits = self._inline.takes_request(len(payload), self._link.max_payload)
        # An inline payload that begins like a reference would be taken for one by its receiver.
        if not fits or is_reference(payload):
            payload = await self._before(deadline_s, subject, self._blobs.put(subject, payload, run=run))
            within_s = deadline_s - clock.monotonic()
        headers = checked(headers) if headers else NO_HEADERS
        # After `put`: a reference in place of a large payload counts nothing.
        counted = self._inline.sent(len(payload))
        asking = self._link.ask(
            self._names.subject(subject), payload, within_s=within_s, headers=headers, stop=stop
        )
        # Freed before the wait for the answer: the payload may be large.
        del payload
        try:
            answer = await asking
        finally:
            self._inline.waiting_bytes -= counted
        if not is_reference(answer.payload):
            return answer.payload
        try:
            return await self._before(deadline_s, subject, self._blobs.fetch(answer.payload))
        except Damaged as error:
            raise ConnectionLost(f"the answer on {subject!r} cannot be read: {error}") from error

    def _is_inline(self, payload: bytes) -> bool:
        """Whether a payload travels inline; one that looks like a reference does not, whatever its size."""
        return self._inline.takes(len(payload), self._link.max_payload) and not is_reference(payload)

    async def _before(self, deadline_s: float, subject: str, work: Awaitable[bytes]) -> bytes:
        with anyio.move_on_after(deadline_s - clock.monotonic()):
            return await work
        raise DeadlineExceeded(f"the deadline passed while a large payload for {subject!r} was on its way")

    async def publish(
        self, subject: str, payload: bytes, *, headers: Headers | None = None, run: str = ""
    ) -> None:
        if not self._is_inline(payload):
            payload = await self._blobs.put(subject, payload, run=run)
        headers = checked(headers) if headers else NO_HEADERS
        await self._link.send(self._names.subject(subject), payload, headers=headers)

    @asynccontextmanager
    async def serve(
        self, subject: str, receive: Callable[[Incoming], None], *, queue: str = ""
    ) -> AsyncGenerator[None]:
        """Receive until the context ends; what the broker has sent by then is still received.

        Raises:
            BrokerError: We may not listen there.
        """
        names = self._names

        def listener(subject: str, reply: str, headers: Headers, payload: bytes) -> None:
            if is_of_jetstream(reply, headers, payload):
                return
            incoming = Incoming(names.bare(subject), payload, reply, headers or None)
            if is_reference(payload):
                self._tasks.start_soon(self._fetch, incoming, receive)
            else:
                receive(incoming)

        sid = self._link.listen(names.pattern(subject), listener, queue=names.subject(queue) if queue else "")
        try:
            # When this returns the broker knows the subscription: a message sent from now on is not missed.
            await self._link.settle()
            if self._link.denied(sid):
                raise BrokerError(f"the broker does not let these credentials listen on {subject!r}")
            yield
        finally:
            # First the broker is told, last the listener is dropped: what it sent before it knew is still
            # received.
            self._link.mute(sid)
            # Shielded, with a limit: it ends in order, and a silent broker does not hold it up.
            with anyio.move_on_after(SETTLE_S, shield=True):
                await self._link.settle()
            self._link.unlisten(sid)

    async def _fetch(self, incoming: Incoming, receive: Callable[[Incoming], None]) -> None:
        async with self._fetching:
            try:
                payload = await self._blobs.fetch(incoming.payload)
                receive(Incoming(incoming.subject, payload, incoming.reply, incoming.headers))
            except TransportError as error:
                # The caller of a lost request learns of the loss by `gym_runtime.rpc.lost`.
                leave_out(incoming.subject, str(error))
            except Exception:
                # The boundary to a subscriber, as for small messages; no caller waits for this task.
                log.exception("receive failed", subject=incoming.subject)

    async def _store(
        self,
        subject: str,
        payload: bytes,
        headers: Headers | None = None,
        *,
        expect: int | None = None,
        once: bool = False,
    ) -> int | None:
        if not self._is_inline(payload):
            payload = await self._blobs.put(subject, payload)
        return await self._streams.store(subject, payload, headers or NO_HEADERS, expect=expect, once=once)

    async def enqueue(
        self, subject: str, payload: bytes, *, headers: Headers | None = None, once: bool = False
    ) -> None:
        await self._store(subject, payload, headers, once=once)

    async def commit(self, subject: str, payload: bytes) -> bool:
        return await self._store(subject, payload, expect=0) is not None

    async def append(
        self, subject: str, payload: bytes, *, expect: int | None = None, once: bool = False
    ) -> int | None:
        return await self._store(subject, payload, expect=expect, once=once)

    async def open_queue(self, pattern: str, *, consumer: str, most: int | None = None) -> None:
        await open_queue(self._streams, pattern, consumer, TASK_ACK_WAIT_S, most)

    async def close_queue(self, pattern: str, *, consumer: str) -> None:
        await open_queue(self._streams, pattern, consumer, TASK_ACK_WAIT_S, 0, closed=True)

    async def pull(
        self,
        pattern: str,
        *,
        consumer: str,
        slots: int | Slots,
        handle: Callable[[Delivery], Awaitable[None]],
        ack_wait_s: float = TASK_ACK_WAIT_S,
        stop: anyio.Event | None = None,
        most: int | None = None,
        rank: Rank | None = None,
    ) -> None:
        puller = Puller(
            self._link,
            self._streams,
            self._blobs,
            pattern=pattern,
            consumer=consumer,
            slots=Slots(slots) if isinstance(slots, int) else slots,
            handle=handle,
            ack_wait_s=ack_wait_s,
            most=most,
            rank=rank,
        )
        await puller.run(stop)

    async def records(self, pattern: str, *, after: int = 0) -> AsyncGenerator[Record]:
        reader = Reader(self._link, self._streams, pattern, after=after)
        try:
            while True:
                yield await self._record(await reader.next())
        finally:
            reader.close()

    async def latest(self, pattern: str, *, nearest: bool = False) -> list[Record]:
        if nearest or not is_pattern(pattern):
            newest = await (self._streams.direct if nearest else self._streams.last)(pattern)
            return [] if newest is None else [await self._record(newest)]
        reader = Reader(self._link, self._streams, pattern)
        try:
            stored = await reader.newest()
        finally:
            reader.close()
        return [await self._record(kept) for kept in stored]

    async def _record(self, kept: Kept) -> Record:
        subject, payload = kept.subject, kept.payload
        try:
            if is_reference(payload):
                payload = await self._blobs.fetch(payload)
        except BrokerError as error:
            # As it is stored, which no reader takes for its record: one bad record must not end the reading
            # of all others. A chunk that is gone may come back with a replica; but what is stored of runs is
            # read by all, and is never large.
            if error.silent or not (isinstance(error, Damaged) or subject.startswith("runs.")):
                raise
            leave_out(subject, str(error))
        return Record(subject, payload, kept.sequence)

    async def forget(self, pattern: str, *, before: int | None = None) -> int:
        return await self._streams.purge(pattern, before=before)

    async def depth(self, consumer: str) -> QueueDepth:
        name = self._names.consumer(consumer)
        verb, failed = f"{self._names.stream('task')}.{name}", f"the broker does not know the consumer {name}"
        state = await self._streams.api(f"CONSUMER.INFO.{verb}", None, failed, expected=NO_CONSUMER)
        return QueueDepth(waiting=state.num_pending, in_flight=state.num_ack_pending)

    async def counts(self, pattern: str) -> dict[str, int]:
        return await self._streams.counts(pattern)

    async def aclose(self) -> None:
        await self._link.close()


@asynccontextmanager
async def connect(
    url: str | Sequence[str],
    *,
    prefix: str = "gym",
    name: str = "gym-runtime",
    role: Role = "client",
    credentials: Path | None = None,
    tls: ssl.SSLContext | None = None,
    replicas: int | None = None,
    streams_needed: bool = False,
) -> AsyncGenerator[NatsBus]:
    """Connect to a broker, or to one of a cluster; ``async with connect(url) as bus``.

    The path of a join file (`gym_runtime.bus.identity`) in place of a URL gives all of the following.
    User and password, or a token, are in the URL; ``credentials`` is a file with an NKey seed or a NATS
    ``.creds`` file. It and ``tls`` come from the environment where they are not given
    (`gym_runtime.bus.identity`). ``role`` names our inboxes, so that a broker can keep roles apart; it
    also chooses the key where a file has several.

    A client creates the streams that are missing; a worker does so when it needs one. Each is kept
    ``replicas`` times, by default three in a cluster and once on a single broker; existing ones keep their
    operator's settings. With ``streams_needed`` connecting fails, with a ``silent`` error, if the streams are
    missing and this worker may not create them. Leaving the context sends what is buffered and disconnects.
    The context holds a task group, so the task that entered it must leave it, after any later context.

    Raises:
        BrokerError: Within five seconds: unreachable, bad credentials, no JetStream, or it takes messages
            that are too small; over a slow link later. The message says what to do.
        UsageError: a URL or the prefix is not valid, or a file cannot be used.
    """
    names = Names(prefix)
    given = [url] if isinstance(url, str) else list(url)
    moved: Callable[[], Sequence[str]] = tuple
    if len(given) == 1 and names_file(given[0]):
        file = Path(given[0])
        join = read_join(file)
        # The file itself serves as the credentials: its key is in the same block as in .creds files.
        where, credentials, tls, moved = parse(join.urls), file, join.trust(), lambda: read_join(file).urls
    else:
        where = parse(url)
        credentials = credentials or credentials_for(where)
    # Agents and clients read and write streams; what answers calls may be near those that ask it.
    far = role in ("agent", "client")
    link = Link(
        where,
        inbox=names.inbox(role),
        name=name,
        credentials=credentials,
        role=role,
        tls=tls or trust(),
        far=far,
        moved=moved,
    )
    failure: Exception | None = None
    await link.dial()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run)
        try:
            if far:
                tasks.start_soon(link.measure_far)
            streams = Streams(link, names, replicas, patient=role != "client")
            # At a secured broker only clients may create streams.
            await streams.setup.open(create=role == "client", needed=streams_needed)
            yield NatsBus(link, streams, tasks)
        except Exception as error:  # noqa: BLE001 not handled: raised below, outside the task group
            failure = error
        finally:
            # A cancelled caller's last messages are sent, too; `close` has its own limit.
            with anyio.CancelScope(shield=True):
                await link.close()
            tasks.cancel_scope.cancel()
    if failure is not None:
        # The task group would have made an exception group of it.
        raise failure
