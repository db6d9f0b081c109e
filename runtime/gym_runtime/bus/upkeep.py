"""A socket to a broker, kept up: connected, watched by pings, and connected again when it is lost.

It is the lower half of a `gym_runtime.bus.connection.Connection`, which sends and asks over it.
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

from gym_runtime.bus.addresses import Addresses
from gym_runtime.bus.handshake import Refused, shake_hands
from gym_runtime.bus.identity import Identity
from gym_runtime.bus.interests import Interests
from gym_runtime.bus.outgoing import Outgoing
from gym_runtime.bus.protocol import PONG, Info, OutOfStep, decode_info
from gym_runtime.bus.requests import Requests
from gym_runtime.bus.round_trip import RoundTrips
from gym_runtime.bus.servers import Servers
from gym_runtime.bus.socket import Socket, Traffic
from gym_runtime.errors import ConnectionLost, UsageError
from gym_runtime.timing import CONNECT_TIMEOUT_S, PING_INTERVAL_S, RECONNECT_S

DISCONNECT_S = 2.0
"""How long a closing connection may take to send what it has buffered."""

log = structlog.get_logger(__name__)

PINGS_OUTSTANDING = 2
PENDING_BYTES = 32 * 1024 * 1024
CLOSED = "the connection to the broker is closed"
_DENIED = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"", re.IGNORECASE)


class Upkeep:
    """Keeps one socket at a time: `run` in a task of its own once it is connected, at the end `close`.

    Args:
        far: at a leaf of another site, what counts is how far the other site's broker is.
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
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._where = where
        self._servers = Servers(where.urls)
        identity = Identity(
            user=where.user, password=where.password, token=where.token, credentials=credentials, role=role
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
        self._round_trips = RoundTrips(self._on_pace)
        self._far = far
        self._watchers: list[Callable[[bool], None]] = []
        self._sid = 0
        self._inboxes = 0
        # Two inboxes: one that only the broker may write to, and one for the answers of other clients.
        self._inbox_root = f"{inbox}.s.{secrets.token_hex(11)}"
        self._answers = f"{inbox}.r.{secrets.token_hex(11)}"
        self._requests = Requests(f"{self._answers}.")

    async def _connect(self) -> None:
        """Connect to the next server; what waits to be sent is sent.

        Raises:
            Refused, OutOfStep, OSError, UsageError: It failed, as `shake_hands` says, or took too long.
        """
        server = self._servers.next()
        # Before the attempt, so that any end of it counts; `connected` sets it back to 0.
        server.failures += 1
        socket = Socket(self._interests.receive, self._outgoing.kick, self.traffic)
        try:
            with anyio.fail_after(CONNECT_TIMEOUT_S):
                await self._loop.create_connection(lambda: socket, server.host, server.port)
                self._info = await self._introduce(socket, server)
        # Also for a cancellation: a socket that is not kept must not stay open.
        except BaseException:
            socket.abort()
            raise
        self._socket = socket
        self._servers.connected(server)
        self._servers.learn(self._info.connect_urls)
        self._pings_unanswered = 0
        self._connected = True
        socket.hand_lines_to(self._on_line)
        # Before what waits: an answer to it could come to a subscription that is not there yet.
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
                # A copy: a watcher may end its watch in the call.
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
            # Any pong sets it back, also that of a `settle`.
            self._pings_unanswered += 1
            pong = self._outgoing.ping()
            if not self.measures_far:
                self._round_trips.measure(pong, partial(self._is_on, self._socket))

    async def _reconnect(self) -> None:
        first_s, most_s = RECONNECT_S
        attempts = 0
        while True:
            attempts += 1
            # Thousands may reconnect at once.
            await anyio.sleep(random.uniform(0.0, min(most_s, first_s * 2.0 ** min(attempts, 10))))
            try:
                return await self._connect()
            # Each restart of a broker causes this. A refusal is a warning, because a person may have to act.
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
    def round_trip_s(self) -> float:
        return self._round_trips.seconds

    @property
    def measures_far(self) -> bool:
        """Whether the link is measured up to the broker that stores, beyond the one connected to."""
        return self._far and not self._info.jetstream

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
            raise ConnectionLost(CLOSED)

    def watch(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    async def close(self) -> None:
        if self._finished:
            return
        # Before `_finished`, after which nothing is sent.
        self._outgoing.write()
        self._finished = True
        self._running.cancel()
        # A full buffer is that of a frozen broker: waiting for it would take all of `DISCONNECT_S`.
        unsent = self._socket.paused
        self._set_down(CLOSED)
        # Wakes those in `wait_up`, who then see that it is closed.
        self._is_up.set()
        self._outgoing.wake()
        try:
            if not unsent:
                with anyio.move_on_after(DISCONNECT_S):
                    self._socket.close()
                    await self._socket.lost.wait()
        finally:
            self._socket.abort()

    def _is_on(self, socket: Socket) -> bool:
        return self._connected and self._socket is socket

    def _on_pace(self) -> None:
        round_trip_s = round(self.round_trip_s, 2)
        if self._round_trips.slow:
            log.warning("the link to the broker is slow", url=self.url, round_trip_s=round_trip_s)
        else:
            log.info("the link to the broker is no longer slow", url=self.url, round_trip_s=round_trip_s)

    def _queue(self, command: bytes) -> None:
        self._outgoing.add((command,), len(command))

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
