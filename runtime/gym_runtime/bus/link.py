"""One connection to a NATS broker, kept up, on the public interface of nats-py: what a `NatsBus` stands on.

A nats-py client is used for one connection and thrown away with it; it never reconnects by itself. What
outlives it is here: the subscriptions, the requests in flight, and what is still to be sent (`Sending`).
Subjects are those on the wire, with the prefix.

Laws:

1. There is one client at a time. When it is lost, or nothing came while `PINGS_OUTSTANDING` echoes were
   awaited, requests in flight fail at once and `run` connects again, to any server of the cluster, for as
   long as it takes.
2. What is sent without a client is kept, up to `sending.PENDING_BYTES`, and sent after the subscriptions.
3. An error of the broker costs one client at most, never the link.

Two uses of nats-py 2.16 are not documented; ``tests/runtime/bus/test_nats_py.py`` watches them:

* ``subscribe(future=…)`` hands each message of the subscription to ``set_result`` from the read loop, without
  a queue and without a task (`Sink`).
* ``Subscription.drain`` sends its PING before its UNSUB, unless the queue of flushes, of length one, is full
  (`Subscriptions`). Messages that came in between would be lost.
"""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
from anyio.abc import TaskGroup
from nats.aio.client import Client
from nats.errors import UnexpectedEOF

from gym_runtime import clock
from gym_runtime.bus import handshake
from gym_runtime.bus.handshake import (
    DISCONNECT_S,
    LOST_ERRORS,
    Callbacks,
    Dialler,
    Info,
    Refused,
    Servers,
    Slow,
    discard,
)
from gym_runtime.bus.identity import Addresses
from gym_runtime.bus.interface import Headers, Stop, Stopped
from gym_runtime.bus.receiving import Listener, RawAnswer, Requests, Subscriptions, settle
from gym_runtime.bus.sending import Message, RoundTrips, Sending
from gym_runtime.bus.wire import NO_HEADERS, size_bytes, status
from gym_runtime.errors import ConnectionLost, DeadlineExceeded, NoWorker, PayloadTooLarge, UsageError
from gym_runtime.logs import logger
from gym_runtime.retrying import Backoff, Pauses
from gym_runtime.timing import API_ANSWER_S, CONNECT_TIMEOUT_S, GREETING_S, PING_INTERVAL_S, RECONNECT_S

log = logger()

DIAL_S = 4.0
"""How long the first connection is tried, over all addresses. Where a broker is there, the last try may then
take `GREETING_S`."""
REFUSED_S = 2.0
"""The same for a client that every address refuses, or whose name has no address: a broker that is started
again listens sooner."""
AWAY_S = 5.0
"""After how long without a broker a line of the log says so. Longer than a usual restart."""
LOOK_S = 0.1
"""How often a client is looked at: nats-py does not call back in every case when its connection is lost."""
PINGS_OUTSTANDING = 2
CLOSED = "the connection to the broker is closed"
BROKE = "the connection to the broker broke"
_DENIED = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"")

Role = Literal["client", "agent", "resource", "model"]
"""What a connection is for; brokers may let each role do less than all."""


class Link:
    """A connection that comes back by itself: `dial`, then `run` in its own task, at the end `close`.

    Args:
        inbox: the root of our reply subjects.
        far: at a leaf of another site, what counts is how far the other site's broker is.
        moved: asked before each reconnection: URLs that may be new.

    Attributes:
        traffic: what has passed, over all connections to the broker.
        sending: what is still to be sent.
        round_trips: how far the broker is.
        closed: whether it is closed for good.
        max_payload: the largest message the broker takes, headers included.
    """

    def __init__(
        self,
        where: Addresses,
        *,
        inbox: str = "_INBOX",
        name: str = "gym-runtime",
        credentials: Path | None = None,
        role: str = "client",
        tls: ssl.SSLContext | None = None,
        far: bool = False,
        moved: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._where, self._far, self._moved = where, far, moved
        self._dialler = Dialler(where=where, name=name, credentials=credentials, role=role, tls=tls)
        self._servers = Servers(where.urls)
        self._info = Info()
        self.max_payload = 1024 * 1024  # asked for with each message, so not through nats-py's property
        self._client: Client | None = None
        self._lost = asyncio.Event()
        self._denied = ""
        self._is_up = asyncio.Event()
        self.closed = False
        self._running = anyio.CancelScope(shield=True)
        self._watchers: list[Callable[[bool], None]] = []
        self.round_trips = RoundTrips(self._on_pace)
        self._inboxes = 0
        # Two inboxes: one that only the broker may write to, and one for the answers of other clients.
        self._inbox_root = f"{inbox}.s.{secrets.token_hex(11)}"
        self._answers = f"{inbox}.r.{secrets.token_hex(11)}"
        self._requests = Requests(f"{self._answers}.")
        # We write to it ourselves; it cannot be guessed from where answers go.
        self._echo = f"{inbox}.r.{secrets.token_hex(11)}.echo"
        self.sending = Sending(self._echo, lambda: self._lost.set())
        self._subscriptions = Subscriptions(
            self.sending.change, lambda: self._lost.set(), nowhere=f"{inbox}.r.{secrets.token_hex(11)}.none"
        )
        self.traffic = self._subscriptions.traffic
        self.connected_s = -math.inf
        self._echo_sid = self.listen(self._echo, self._on_echo)

    # -- connecting

    async def dial(self) -> None:
        """Connect for the first time.

        Raises:
            BrokerError: It is not reachable, or refuses us, or takes too small messages only.
            UsageError: The credentials cannot be used.
        """
        failure: Exception | None = None
        began_s, refused = self._loop.time(), self._dialler.role == "client"
        inbox = f"{self._answers}.*"
        sid = self.listen(inbox, self._requests.answer)  # subscribed by each connection
        try:
            while not self._is_up.is_set() and (left_s := began_s + DIAL_S - self._loop.time()) > 0:
                try:
                    await self._connect(left_s)
                    await self._first_answer()
                    # Only now: requests that were sent before could not be answered.
                    self._is_up.set()
                # A time-out of `anyio.fail_after` is an OSError, too.
                except (Refused, OSError) as error:
                    failure = error
                    await discard(self._set_down(BROKE))
                    # A wrong password or certificate stays wrong; a refused connection may be a broker
                    # that still starts.
                    if handshake.is_final(error) or self.denied(self._echo_sid):
                        break
                    refused = refused and isinstance(error, ConnectionRefusedError | socket.gaierror)
                    if refused and self._loop.time() >= began_s + REFUSED_S:
                        break
                    await anyio.sleep(RECONNECT_S[0])
            if self.denied(sid) or self.denied(self._echo_sid):
                raise handshake.unheard(self._where.shown, inbox, self._dialler.role)
            if not self._is_up.is_set():
                raise handshake.unreachable(self._where.shown, failure, self._dialler.credentials)
            if self.max_payload < handshake.MIN_MAX_PAYLOAD:
                raise handshake.too_small(self._where.shown, self.max_payload)
        # `close` is not called after a failed dial, or one that was cancelled; so the client must go here.
        except BaseException:
            await discard(self._set_down(CLOSED))
            raise

    async def _first_answer(self) -> None:
        """Wait until the broker has answered: a refused subscription is known by then."""
        lost = self._lost
        with anyio.fail_after(GREETING_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._cancel_when, lost, tasks.cancel_scope)
                await self.settle()
                tasks.cancel_scope.cancel()
        if lost.is_set():
            raise ConnectionResetError("the connection broke after the greeting")

    @staticmethod
    async def _cancel_when(event: asyncio.Event, scope: anyio.CancelScope) -> None:
        await event.wait()
        scope.cancel()

    async def _connect(self, within_s: float = CONNECT_TIMEOUT_S) -> None:
        """Connect to the next server, which must say what it is in this time, and subscribe there.

        Raises:
            Refused, OSError, UsageError: It failed, as `Dialler.connect` says, or took too long.
        """
        server = self._servers.next()
        # Before the attempt, so that any end of it counts; `connected` sets it back to 0.
        server.failures += 1
        lost = asyncio.Event()
        with anyio.fail_after(min(within_s, CONNECT_TIMEOUT_S)):
            info = await handshake.look_at(server)
        # A broker is there: the rest may take as long as a slow link needs.
        try:
            with anyio.fail_after(GREETING_S):
                client = await self._dialler.connect(server, info, self._callbacks(lost))
                try:
                    await self._subscriptions.attach(client)
                except BaseException as error:
                    await discard(client)
                    if isinstance(error, LOST_ERRORS):
                        raise ConnectionResetError(str(error)) from error
                    raise
        except TimeoutError as error:
            raise Slow from error
        self._servers.connected(server)
        self._info, self._lost, self._client = info, lost, client
        self.max_payload = client.max_payload
        self._servers.learn(uri.netloc for uri in client.discovered_servers)
        self.sending.attach(client)

    def _callbacks(self, lost: asyncio.Event) -> Callbacks:
        async def failed(error: Exception) -> None:
            if not isinstance(error, OSError | UnexpectedEOF):
                self._on_error(str(error))
                if not self.denied(self._echo_sid):  # without echoes nothing is known of the broker
                    return
            lost.set()

        async def gone() -> None:
            lost.set()

        async def learnt() -> None:
            if client := self._client:
                self._servers.learn(uri.netloc for uri in (*client.discovered_servers, *client.servers))

        return {
            "error_cb": failed,
            "disconnected_cb": gone,
            "closed_cb": gone,
            "discovered_server_cb": learnt,
        }

    async def run(self) -> None:
        """Keep the connection until `close`, also when cancelled: what was sent before must still go out."""
        async with anyio.create_task_group() as discarded:
            with self._running:
                await self._keep(discarded)

    async def _keep(self, discarded: TaskGroup) -> None:
        while True:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.sending.run)
                tasks.start_soon(self._subscriptions.run)
                await self._until_lost()
                tasks.cancel_scope.cancel()
            discarded.start_soon(discard, self._set_down(BROKE))
            await self._reconnect()
            self.connected_s = clock.monotonic()
            self._is_up.set()
            # A copy: a watcher may end its watch in the call.
            for changed in list(self._watchers):
                changed(True)

    async def _until_lost(self) -> None:
        """Return when the client is lost, or the broker has not answered for too long."""
        client, lost, sending = self._client, self._lost, self.sending
        assert client is not None

        def look() -> None:
            nonlocal timer
            if client.is_connected:
                timer = self._loop.call_later(LOOK_S, look)
            else:
                lost.set()

        heard_bytes = self.traffic.received_bytes

        # A callback, because ten cancel scopes a second would be 3 to 6 % of a worker's CPU.
        timer = self._loop.call_later(0, look)
        try:
            while not lost.is_set():
                with anyio.move_on_after(PING_INTERVAL_S):
                    await lost.wait()
                    break
                # An echo may be behind megabytes that a slow link takes long to bring.
                if self.traffic.received_bytes != heard_bytes:
                    heard_bytes, sending.unanswered = self.traffic.received_bytes, 0
                if sending.unanswered >= PINGS_OUTSTANDING:
                    log.warning("the broker does not answer", url=self.url, pings=sending.unanswered)
                    return
                sending.unanswered += 1
                echo = sending.echo()
                if not self.measures_far:
                    self.round_trips.measure(echo, lambda: self._client is client and not sending.unanswered)
        finally:
            timer.cancel()
        error = client.last_error
        if error is not None and not isinstance(error, OSError | UnexpectedEOF):
            log.warning("broker error", error=str(error))

    async def _reconnect(self) -> None:
        backoff = Backoff(Pauses(*RECONNECT_S))
        say_s = self._loop.time() + AWAY_S
        said = set[str]()
        while True:
            await backoff.wait()
            try:
                self._servers.add(self._moved())
                return await self._connect()
            except (Refused, OSError, UsageError) as error:
                log.debug("not reconnected", error=repr(error))
                if isinstance(error, OSError) and not handshake.is_final(error):
                    # Each restart of a broker causes this.
                    if self._loop.time() >= say_s:
                        log.warning("the broker is away; waiting for it", url=self._where.shown)
                        say_s = math.inf
                    continue
                # A person may have to act. Said once, because that may take days.
                if not isinstance(error, UsageError):
                    error = handshake.unreachable(self._where.shown, error, self._dialler.credentials)
                if str(error) not in said:
                    said.add(str(error))
                    log.warning("the broker does not take this connection again; trying on", error=str(error))

    def _set_down(self, why: str) -> Client | None:
        """Returns the client, which is to be discarded."""
        was_up = self._is_up.is_set()
        self._is_up.clear()
        client, self._client = self._client, None
        self._subscriptions.detach()
        self._requests.fail(why)
        self.sending.detach()
        if was_up:
            self.connected_s = math.inf
            for changed in list(self._watchers):
                changed(False)
        return client

    async def close(self) -> None:
        """Send what is buffered, for two seconds at most, and disconnect for good."""
        if self.closed:
            return
        # What is crowded is sent to a frozen broker: waiting for it would take all of `DISCONNECT_S`.
        if not self.sending.crowded:
            with anyio.move_on_after(DISCONNECT_S):
                await self.settle()
        self.closed = True
        client = self._set_down(CLOSED)
        # Wakes those in `wait_up`, who then see that it is closed.
        self._is_up.set()
        self.sending.wake()
        self._running.cancel()
        await discard(client)

    # -- what the broker says beside messages

    def _on_echo(self, subject: str, reply: str, headers: Headers, payload: bytes) -> None:
        self.sending.echoed()

    def _on_error(self, text: str) -> None:
        found = _DENIED.search(text.lower())
        if found is None:
            return
        kind, subject = found.groups()
        if kind == "publish" and subject == self._echo.lower():  # its refusal is an answer, too
            self.sending.echoed()
            return
        unheard = subject in (self._echo.lower(), f"{self._answers}.*".lower())  # `dial` says so
        # Once: what is denied may be asked again and again.
        if text != self._denied and (self._is_up.is_set() or not unheard):
            self._denied = text
            log.warning("broker error", error=text)
        # nats-py hands over the text in small letters.
        if kind == "publish":
            self._requests.deny(subject, f"the broker does not let these credentials publish to {subject!r}")
        else:
            self._subscriptions.deny(subject)

    def _on_pace(self) -> None:
        round_trip_s = round(self.round_trips.seconds, 2)
        if self.round_trips.slow:
            log.warning("the link to the broker is slow", url=self.url, round_trip_s=round_trip_s)
        else:
            log.info("the link to the broker is no longer slow", url=self.url, round_trip_s=round_trip_s)

    # -- listening

    def inbox(self) -> str:
        """A new subject that no other process uses."""
        self._inboxes += 1
        return f"{self._inbox_root}.{self._inboxes}"

    def listen(self, subject: str, listener: Listener, *, queue: str = "") -> int:
        """Subscribe; survives reconnections. Returns the subscription's id."""
        return self._subscriptions.add(subject, listener, queue)

    def denied(self, sid: int) -> bool:
        """Whether the broker refused a subscription; known after a `settle`."""
        return self._subscriptions.denied(sid)

    def unlisten(self, sid: int) -> None:
        """End a subscription at once; what arrives afterwards is dropped."""
        self._subscriptions.end(sid)

    def mute(self, sid: int) -> None:
        """Ask the broker to end a subscription, but hand over what is still on its way.

        `unlisten` must follow, after a `settle`.
        """
        self._subscriptions.mute(sid)

    async def settle(self) -> None:
        """Return when the broker has acted on everything sent before; at once when disconnected."""
        await self.sending.echo()
        await self._subscriptions.drained()

    # -- sending and asking

    def post(self, subject: str, payload: bytes, *, reply: str = "", headers: Headers = NO_HEADERS) -> None:
        """Send without waiting for room in the outgoing buffer: for small control messages."""
        # Clean-up after the close still posts (a task given back, a consumer to delete), and reaches nothing.
        if self.closed:
            return
        size = len(payload) + size_bytes(headers)
        # Headers count, which nats-py does not see: the broker would close the connection.
        if size > self.max_payload:
            raise PayloadTooLarge(
                f"{len(payload)} bytes and {size - len(payload)} of headers on {subject!r}; the broker takes "
                f"{self.max_payload}"
            )
        size += len(subject)
        self.traffic.sent_bytes += size
        self.sending.add(Message(subject, payload, reply, headers), size)

    async def send(
        self, subject: str, payload: bytes, *, reply: str = "", headers: Headers = NO_HEADERS
    ) -> None:
        """Send; waits while the outgoing buffer is full, and can be cancelled there.

        Raises:
            PayloadTooLarge: Headers and payload exceed ``max_payload``.
            ConnectionLost: The connection is closed for good.
        """
        if self.closed or self.sending.full:
            await self._room()
        self.post(subject, payload, reply=reply, headers=headers)

    async def _room(self) -> None:
        while not self.closed and self.sending.full:
            await self.sending.room()
        if self.closed:
            raise ConnectionLost(CLOSED)

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        within_s: float,
        headers: Headers = NO_HEADERS,
        stop: Stop | None = None,
        from_arrival: bool = False,
    ) -> RawAnswer:
        """Send and wait for one answer. While disconnected it waits for the connection first.

        Args:
            from_arrival: the time begins when the request has arrived, so that it is not sent again while a
                slow link still carries it. Until then the connection is known to live (`_until_lost`).

        Raises:
            NoWorker: no process listens on the subject.
            ConnectionLost: The connection broke while waiting for the answer.
            DeadlineExceeded: Nothing came within ``within_s`` seconds.
            BrokerError: We may not publish there.
            PayloadTooLarge: As for `send`.
            Stopped: ``stop`` was used.
        """
        if not self._is_up.is_set() or self.closed or self.sending.full:
            started_s = self._loop.time()
            with anyio.move_on_after(within_s) as scope:
                await self.wait_up()
                await self._room()
            if scope.cancelled_caught:
                raise DeadlineExceeded(f"the broker did not come back within {within_s:.1f} s")
            # What the wait for the connection took is gone from the caller's time.
            within_s -= self._loop.time() - started_s
        reply, future = self._requests.begin(subject, within_s)
        try:
            if stop is not None:
                stop.calls(partial(settle, future, Stopped()))
            self.post(subject, payload, reply=reply, headers=headers)
            # It may be large, and the answer may take minutes.
            del payload
            end_bytes = self.sending.end_bytes
            answer = await future
            while (
                from_arrival
                and isinstance(answer, DeadlineExceeded)
                and self.sending.arrived_bytes < end_bytes
            ):
                _, future = self._requests.begin(subject, within_s, reply)
                answer = await future
        finally:
            self._requests.end(reply)
        # Failures come as results (`Requests`), and are raised in the caller's task only.
        if not isinstance(answer, RawAnswer):
            raise answer
        if status(answer.headers) == 503:
            raise NoWorker(f"no worker serves {subject!r}")
        return answer

    async def measure_far(self) -> None:
        """Measure how far the broker that stores is, where that is another one, until cancelled."""
        while True:
            await anyio.sleep(PING_INTERVAL_S)
            if self._is_up.is_set() and self.measures_far:
                await self._ask_far()

    async def _ask_far(self) -> None:
        answered = self._loop.create_future()
        self.round_trips.measure(answered, lambda: not answered.cancelled())
        try:
            with suppress(DeadlineExceeded):  # it takes that long at least
                await self.ask("$JS.API.INFO", b"", within_s=API_ANSWER_S)
            answered.set_result(None)
        except (NoWorker, ConnectionLost):
            pass  # it cannot be reached
        finally:
            answered.cancel()

    # -- how it is

    @property
    def up(self) -> bool:
        """Whether there is a connection now."""
        return self._is_up.is_set() and not self.closed

    @property
    def url(self) -> str:
        """The broker connected to now, without credentials; empty while disconnected."""
        server = self._servers.current
        return server.url if server is not None and self._client is not None else ""

    @property
    def measures_far(self) -> bool:
        """Whether the link is measured up to the broker that stores, beyond the one connected to."""
        return self._far and not self._info.jetstream

    @property
    def clustered(self) -> bool:
        """Whether the broker is one of several that store together."""
        return bool(self._info.cluster)

    async def wait_up(self) -> None:
        """Wait for the connection.

        Raises:
            ConnectionLost: The connection is closed for good.
        """
        await self._is_up.wait()
        if self.closed:
            raise ConnectionLost(CLOSED)

    def watch(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        """Call ``changed`` with False when the connection breaks and True when it is back.

        Returns a function that ends the watch.
        """
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)
