"""One connection to a NATS broker: the `gym_runtime.bus.link.Link` below a `gym_runtime.bus.nats.NatsBus`.

It speaks the protocol of `gym_runtime.bus.wire` over a `Socket`. Messages go from the socket to a plain
function, what is sent goes through an `Outgoing` list, and requests share one inbox.

Laws:

1. There is one socket at a time. When it is lost, or `PINGS_OUTSTANDING` pings are not answered, requests
   in flight fail at once and `run` connects again, to any server of the cluster, for as long as it takes.
2. What is sent without a socket is kept, up to `PENDING_BYTES`, and sent after the subscriptions.
3. An error of the broker costs one socket at most, never the connection.

It does not use nats-py 2.16, which queues each message for a task (5.0 µs of CPU for a message of 256 bytes,
here 2.3), swallows cancellation in ``publish``, closes for good on an error of the broker, waits without
limit for a lost socket, and leaves requests in flight to their time-outs. Each can be cured in its private
methods only.
"""

from __future__ import annotations

import asyncio
import random
import re
import secrets
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import structlog

from gym_runtime.bus import connection_errors
from gym_runtime.bus.addresses import Addresses
from gym_runtime.bus.handshake import Refused, shake_hands
from gym_runtime.bus.identity import Identity
from gym_runtime.bus.interests import Interest, Interests
from gym_runtime.bus.link import Listener, RawAnswer
from gym_runtime.bus.outgoing import Outgoing
from gym_runtime.bus.requests import Requests
from gym_runtime.bus.servers import Servers
from gym_runtime.bus.socket import Socket, Traffic
from gym_runtime.bus.wire import (
    CRLF,
    NO_RESPONDERS,
    PONG,
    Info,
    OutOfStep,
    decode_info,
    publish_command,
    subscribe_command,
    unsubscribe_command,
)
from gym_runtime.errors import (
    ConnectionLost,
    DeadlineExceeded,
    NoWorker,
    PayloadTooLarge,
    UsageError,
)
from gym_runtime.timing import CONNECT_TIMEOUT_S, DIAL_S, DISCONNECT_S, PING_INTERVAL_S, RECONNECT_S

log = structlog.get_logger(__name__)

PINGS_OUTSTANDING = 2
PENDING_BYTES = 32 * 1024 * 1024
_DENIED = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"", re.IGNORECASE)
_CLOSED = "the connection to the broker is closed"


class Connection:
    """A `gym_runtime.bus.link.Link`: `dial`, then `run` in a task of its own, at the end `close`."""

    def __init__(
        self,
        where: Addresses,
        *,
        inbox: str = "_INBOX",
        name: str = "gym-runtime",
        credentials: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._where = where
        self._servers = Servers(where.urls)
        identity = Identity(
            user=where.user, password=where.password, token=where.token, credentials=credentials
        )
        self._introduce = partial(shake_hands, name=name, identity=identity, tls=tls)
        self.traffic = Traffic()
        self._interests = Interests()
        self._outgoing = Outgoing(PENDING_BYTES)
        self._socket = Socket(self._interests.receive, self._outgoing.kick)
        self._info = Info()
        self._connected = False
        self._is_up = asyncio.Event()
        self._finished = False
        self._running = anyio.CancelScope()
        self._pings_unanswered = 0
        self._watchers: list[Callable[[bool], None]] = []
        self._sid = 0
        self._inboxes = 0
        # Two inboxes: one that only the broker may write to, and one for the answers of other clients.
        self._inbox_root = f"{inbox}.s.{secrets.token_hex(11)}"
        self._answers = f"{inbox}.r.{secrets.token_hex(11)}"
        self._requests = Requests(f"{self._answers}.")

    async def dial(self) -> None:
        """Connect for the first time.

        Raises:
            BrokerError: It is not reachable, or refuses us, or takes too small messages only.
            UsageError: The credentials cannot be used.
        """
        failure: Exception | None = None
        with anyio.move_on_after(DIAL_S):
            while not self._connected:
                try:
                    await self._connect()
                except (Refused, OutOfStep, OSError) as error:
                    failure = error
                    if connection_errors.is_final(error):
                        break
                    await anyio.sleep(RECONNECT_S[0])
        if not self._connected:
            raise connection_errors.unreachable(self._where.shown, failure)
        try:
            await self._check(self._where.shown)
        except BaseException:
            self._socket.abort()
            raise
        self._is_up.set()

    async def _check(self, where: str) -> None:
        """See that this connection will do; from then on requests are answered."""
        if self.max_payload < connection_errors.MIN_MAX_PAYLOAD:
            raise connection_errors.too_small(where, self.max_payload)
        inbox = f"{self._answers}.*"
        sid = self.listen(inbox, self._requests.answer)
        await self.settle()
        if self.denied(sid):
            raise connection_errors.unheard(where, inbox)

    async def _connect(self) -> None:
        """Connect to the next server; what waits to be sent is sent.

        Raises:
            Refused, OutOfStep, OSError, UsageError: It failed, as `shake_hands` says, or took too long.
        """
        server = self._servers.next()
        server.failures += 1
        socket = Socket(self._interests.receive, self._outgoing.kick, self.traffic)
        try:
            with anyio.fail_after(CONNECT_TIMEOUT_S):
                await self._loop.create_connection(lambda: socket, server.host, server.port)
                self._info = await self._introduce(socket, server)
        except BaseException:
            socket.abort()
            raise
        self._socket = socket
        self._servers.connected(server)
        self._servers.learn(self._info.connect_urls)
        self._pings_unanswered = 0
        self._connected = True
        socket.hand_lines_to(self._on_line)
        socket.write(self._interests.commands())
        self._outgoing.attach(socket)

    async def run(self) -> None:
        """Keep the connection, until it is closed."""
        with self._running:
            while True:
                await self._until_lost()
                self._set_down("the connection to the broker broke")
                # Unsent bytes to a frozen broker would keep the old socket for minutes.
                self._socket.abort()
                await self._reconnect()
                self._is_up.set()
                for changed in list(self._watchers):
                    changed(True)

    async def _until_lost(self) -> None:
        """Return when the socket is lost, or the broker has not answered for too long."""
        while True:
            with anyio.move_on_after(PING_INTERVAL_S):
                await self._socket.lost.wait()
                return
            if self._pings_unanswered >= PINGS_OUTSTANDING:
                log.warning("the broker does not answer", url=self.url, pings=self._pings_unanswered)
                return
            self._pings_unanswered += 1
            self._outgoing.ping()

    async def _reconnect(self) -> None:
        first_s, most_s = RECONNECT_S
        attempts = 0
        while True:
            attempts += 1
            # Thousands may reconnect at once.
            await anyio.sleep(random.uniform(0.0, min(most_s, first_s * 2.0 ** min(attempts, 10))))
            try:
                return await self._connect()
            except OSError as error:
                log.debug("not reconnected", error=repr(error))
            except (Refused, OutOfStep, UsageError) as error:
                log.warning("the broker does not take this connection again", error=str(error))

    @property
    def up(self) -> bool:
        return self._is_up.is_set() and not self._finished

    @property
    def url(self) -> str:
        server = self._servers.current
        return server.url if server is not None and self._connected else ""

    @property
    def closed(self) -> bool:
        return self._finished

    @property
    def clustered(self) -> bool:
        return bool(self._info.cluster)

    @property
    def max_payload(self) -> int:
        return self._info.max_payload

    async def wait_up(self) -> None:
        await self._is_up.wait()
        if self._finished:
            raise ConnectionLost(_CLOSED)

    def watch(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def inbox(self) -> str:
        self._inboxes += 1
        return f"{self._inbox_root}.{self._inboxes}"

    def listen(self, subject: str, listener: Listener, *, queue: str = "") -> int:
        self._sid += 1
        self._interests[self._sid] = Interest(subject, queue, listener)
        if self._connected:
            self._queue(subscribe_command(self._sid, subject, queue))
        return self._sid

    def unlisten(self, sid: int) -> None:
        if self._interests.pop(sid, None) is not None:
            self.mute(sid)

    def denied(self, sid: int) -> bool:
        return self._interests[sid].denied

    def mute(self, sid: int) -> None:
        if self._connected:
            self._queue(unsubscribe_command(sid))

    async def settle(self) -> None:
        if self._connected:
            await self._outgoing.ping()

    def post(self, subject: str, payload: bytes, *, reply: str = "", header: bytes = b"") -> None:
        if self._finished:
            return
        size = len(payload) + len(header)
        if size > self._info.max_payload:
            raise PayloadTooLarge(
                f"{len(payload)} bytes and {len(header)} of headers on {subject!r}; the broker takes "
                f"{self._info.max_payload}"
            )
        command = publish_command(subject, reply, len(header), size)
        self._outgoing.add((command, header, payload, CRLF), size + len(command))

    async def send(self, subject: str, payload: bytes, *, reply: str = "", header: bytes = b"") -> None:
        if self._finished or self._outgoing.full:
            await self._room()
        self.post(subject, payload, reply=reply, header=header)

    async def ask(self, subject: str, payload: bytes, *, within_s: float, header: bytes = b"") -> RawAnswer:
        if not self._is_up.is_set() or self._finished or self._outgoing.full:
            started_s = self._loop.time()
            with anyio.move_on_after(within_s) as scope:
                await self.wait_up()
                await self._room()
            if scope.cancelled_caught:
                raise DeadlineExceeded(f"the broker did not come back within {within_s:.1f} s")
            within_s -= self._loop.time() - started_s
        number, reply, future = self._requests.begin(subject)
        timer = self._requests.limit(number, within_s)
        try:
            self.post(subject, payload, reply=reply, header=header)
            answer = await future
        finally:
            if timer is not None:
                timer.cancel()
            self._requests.end(number)
        if not isinstance(answer, RawAnswer):
            raise answer
        if answer.header.startswith(NO_RESPONDERS):
            raise NoWorker(f"no worker serves {subject!r}")
        return answer

    async def close(self) -> None:
        if self._finished:
            return
        self._outgoing.write()
        self._finished = True
        self._running.cancel()
        unsent = self._socket.paused
        self._set_down(_CLOSED)
        self._is_up.set()
        self._outgoing.wake()
        try:
            if not unsent:
                with anyio.move_on_after(DISCONNECT_S):
                    self._socket.close()
                    await self._socket.lost.wait()
        finally:
            self._socket.abort()

    def _queue(self, command: bytes) -> None:
        self._outgoing.add((command,), len(command))

    async def _room(self) -> None:
        while not self._finished and self._outgoing.full:
            await self._outgoing.room()
        if self._finished:
            raise ConnectionLost(_CLOSED)

    def _set_down(self, why: str) -> None:
        was_up = self._is_up.is_set()
        self._is_up.clear()
        self._connected = False
        self._requests.fail(why)
        self._outgoing.detach()
        if was_up:
            for changed in list(self._watchers):
                changed(False)

    def _on_line(self, line: bytes) -> None:
        """What the broker says beside messages."""
        if line == b"PING":
            self._queue(PONG)
        elif line == b"PONG":
            self._pings_unanswered = 0
            self._outgoing.ponged()
        elif line.startswith(b"INFO"):
            self._on_info(line)
        elif line.startswith(b"-ERR"):
            self._on_refusal(line[4:].decode("utf-8", "replace").strip())

    def _on_info(self, line: bytes) -> None:
        try:
            self._info = decode_info(line)
        except OutOfStep as error:
            log.warning("broker information not understood", error=str(error))
            return
        self._servers.learn(self._info.connect_urls, leaving=self._info.ldm)

    def _on_refusal(self, text: str) -> None:
        # What is fatal the broker follows with the end of the connection, and we reconnect.
        log.warning("broker error", error=text)
        found = _DENIED.search(text)
        if found is None:
            return
        subject = found[2]
        if found[1].lower() == "publish":
            self._requests.deny(subject, f"the broker does not let these credentials publish to {subject!r}")
        else:
            self._interests.deny(subject)
