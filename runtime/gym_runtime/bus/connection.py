"""The NATS bus: the promises of `gym_runtime.bus.interface`, kept by one connection to a NATS broker.

`connect` opens it and makes a `NatsBus` of it. `Connection` is nats-py's client with its hot paths and
hazards replaced: messages go from the socket to a plain function (`gym_runtime.bus.wire`), sending is an
append to a list that is written once per turn of the event loop, and requests share one inbox. What
nats-py still does is to negotiate (TLS, credentials), to ping, and to reconnect. Private methods are
overridden, so nats-py is pinned to 2.16.*, and tests/runtime/bus/test_nats.py proves each cure.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import structlog

from gym_runtime.bus import addresses, refusals
from gym_runtime.bus.addresses import Addresses, without_credentials
from gym_runtime.bus.identity import credentials_for, is_jwt, trust
from gym_runtime.bus.interests import Interest, Interests
from gym_runtime.bus.library import Client, Server, Srv, errors
from gym_runtime.bus.link import Answer, Listener, Role
from gym_runtime.bus.nats import NatsBus
from gym_runtime.bus.requests import Requests, expire
from gym_runtime.bus.subjects import Names
from gym_runtime.bus.wire import CRLF, NO_RESPONDERS, Wire
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded, NoWorker, PayloadTooLarge
from gym_runtime.timing import RECONNECTED_S

log = structlog.get_logger(__name__)

DIAL_S = 4.0
CONNECT_TIMEOUT_S = 2
CLOSE_S = 2.0
CANCEL_AGAIN_S = 0.1
PING_INTERVAL_S = 5
PINGS_OUTSTANDING = 2
RECONNECT_S = (0.05, RECONNECTED_S)
PENDING_BYTES = 32 * 1024 * 1024
PING = b"PING\r\n"
_DENIED = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"", re.IGNORECASE)


class Connection(Client):
    """A `gym_runtime.bus.link.Link` made of nats-py's client."""

    def __init__(self, inbox: str = "_INBOX") -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._interests = Interests()
        self._subs = cast(Any, self._interests)
        self._wire = Wire(self._interests.receive, self._kick)
        self._is_up = asyncio.Event()
        self._finished = False
        self._dialling = True
        self._kicked = False
        self._pings_due = 0
        self._room_waiters: list[asyncio.Future[None]] = []
        self._watchers: list[Callable[[bool], None]] = []
        self._inboxes = 0
        # What nobody but the broker may write to, and, apart from it, where we are answered.
        self._inbox_root = f"{inbox}.s.{secrets.token_hex(11)}"
        self._answers = f"{inbox}.r.{secrets.token_hex(11)}"
        self._requests = Requests(f"{self._answers}.")

    async def dial(
        self, where: Addresses, *, name: str, credentials: Path | None, tls: ssl.SSLContext | None
    ) -> None:
        """Connect for the first time.

        Raises:
            BrokerError: It is not reachable, or refuses us, or takes too small messages only.
            UsageError: The credentials are none.
        """
        jwt = credentials is not None and is_jwt(credentials)
        try:
            with anyio.move_on_after(DIAL_S):
                await self.connect(
                    list(where.urls),
                    user=where.user,
                    password=where.password,
                    token=where.token,
                    user_credentials=credentials if jwt else None,
                    nkeys_seed=None if jwt or credentials is None else str(credentials),
                    tls=tls,
                    name=name,
                    error_cb=self._on_error,
                    reconnected_cb=self._on_reconnected,
                    connect_timeout=CONNECT_TIMEOUT_S,
                    reconnect_time_wait=cast(int, 0.1),
                    max_reconnect_attempts=-1,
                    ping_interval=PING_INTERVAL_S,
                    max_outstanding_pings=PINGS_OUTSTANDING,
                    pending_size=PENDING_BYTES,
                    reconnect_to_server_handler=self._choose,
                )
        except (errors.Error, OSError, ImportError) as error:
            self._err = cast(Exception, error)
        connected, why = self.is_connected, self._err
        self._dialling = False
        if not connected:
            # A broker may end the connection after it was made (a certificate it does not like); by then
            # nats-py makes it again, for ever.
            with anyio.CancelScope(shield=True):
                await self.close()
            raise refusals.unreachable(where.shown, why)
        try:
            await self._check(where.shown)
        except BrokerError:
            await self.close()
            raise
        self._is_up.set()

    async def _check(self, where: str) -> None:
        """See that this connection will do; from then on requests are answered."""
        if self._max_payload < refusals.MIN_MAX_PAYLOAD:
            raise refusals.too_small(where, self._max_payload)
        inbox = f"{self._answers}.*"
        sid = self.listen(inbox, self._requests.answer)
        await self.settle()
        if self.denied(sid):
            raise refusals.unheard(where, inbox)

    @property
    def up(self) -> bool:
        return self._is_up.is_set() and not self._finished

    @property
    def url(self) -> str:
        uri = self.connected_url
        return "" if uri is None else without_credentials(uri.geturl())

    @property
    def closed(self) -> bool:
        return self._finished

    @property
    def clustered(self) -> bool:
        return bool(self._server_info.get("cluster"))

    async def wait_up(self) -> None:
        await self._is_up.wait()
        if self._finished:
            raise ConnectionLost("the connection to the broker is closed")

    def watch(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def inbox(self) -> str:
        self._inboxes += 1
        return f"{self._inbox_root}.{self._inboxes}"

    def listen(self, subject: str, listener: Listener, *, queue: str = "") -> int:
        self._sid += 1
        self._interests[self._sid] = Interest(subject, queue, listener)
        if self.is_connected:
            self._queue_line(f"SUB {subject} {queue} {self._sid}\r\n".encode())
        return self._sid

    def unlisten(self, sid: int) -> None:
        if self._interests.pop(sid, None) is not None:
            self.mute(sid)

    def denied(self, sid: int) -> bool:
        return self._interests[sid].denied

    def mute(self, sid: int) -> None:
        if self.is_connected:
            self._queue_line(f"UNSUB {sid}\r\n".encode())

    async def settle(self) -> None:
        if self.is_connected:
            pong: asyncio.Future[Any] = self._loop.create_future()
            await self._send_ping(pong)
            await pong

    def post(self, subject: str, payload: bytes, *, reply: str = "", header: bytes = b"") -> None:
        if self._finished:
            return
        size = len(payload) + len(header)
        if size > self._max_payload:
            raise PayloadTooLarge(
                f"{len(payload)} bytes and {len(header)} of headers on {subject!r}; the broker takes "
                f"{self._max_payload}"
            )
        if header:
            self._queue_line(f"HPUB {subject} {reply} {len(header)} {size}\r\n".encode())
            self._pending.append(header)
        else:
            self._queue_line(f"PUB {subject} {reply} {size}\r\n".encode())
        self._pending += (payload, CRLF)
        self._pending_data_size += size

    async def send(self, subject: str, payload: bytes, *, reply: str = "", header: bytes = b"") -> None:
        if self._finished or self._pending_data_size > PENDING_BYTES:
            await self._room()
        self.post(subject, payload, reply=reply, header=header)

    async def ask(self, subject: str, payload: bytes, *, within_s: float, header: bytes = b"") -> Answer:
        end = self._loop.time() + within_s
        if not self._is_up.is_set() or self._finished or self._pending_data_size > PENDING_BYTES:
            with anyio.move_on_after(within_s) as scope:
                await self.wait_up()
                await self._room()
            if scope.cancelled_caught:
                raise DeadlineExceeded(f"the broker did not come back within {within_s:.1f} s")
        number, reply, future = self._requests.begin(subject)
        timer = self._loop.call_at(end, expire, future, subject, within_s)
        try:
            self.post(subject, payload, reply=reply, header=header)
            answer = await future
        finally:
            timer.cancel()
            self._requests.end(number)
        if not isinstance(answer, Answer):
            raise answer
        if answer.header.startswith(NO_RESPONDERS):
            raise NoWorker(f"nobody serves {subject!r}")
        return answer

    def _queue_line(self, line: bytes) -> None:
        self._pending.append(line)
        self._pending_data_size += len(line)
        if not self._kicked:
            self._kicked = True
            self._loop.call_soon(self._write_pending)

    def _kick(self) -> None:
        if (self._pending or self._pings_due) and not self._kicked:
            self._kicked = True
            self._loop.call_soon(self._write_pending)

    def _write_pending(self) -> None:
        """Write what this turn of the loop sent; when the socket is full, `_kick` comes again later."""
        self._kicked = False
        if not self.is_connected or self._wire.paused:
            return
        pending, self._pending = self._pending, []
        pending.append(PING * self._pings_due)
        self._pending_data_size = self._pings_due = 0
        self._wire.write(b"".join(pending))
        self._wake_room()

    async def _room(self) -> None:
        while not self._finished and self._pending_data_size > PENDING_BYTES:
            waiter = self._loop.create_future()
            self._room_waiters.append(waiter)
            await waiter
        if self._finished:
            raise ConnectionLost("the connection to the broker is closed")

    def _wake_room(self) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _set_down(self, why: str) -> None:
        was_up = self._is_up.is_set()
        self._is_up.clear()
        self._requests.fail(why)
        # The answer to a ping of this connection on the next one would be taken for another's.
        self._pings_due = 0
        for pong in self._waiting_pongs():
            if not pong.done():
                pong.set_result(None)
        if was_up:
            for changed in list(self._watchers):
                changed(False)

    # What follows replaces private methods of nats-py's client.

    async def _flush_pending(self, force_flush: bool = False) -> None:
        self._kick()

    async def _flusher(self) -> None:
        await self._loop.create_future()

    def _waiting_pongs(self) -> list[asyncio.Future[None]]:
        return cast(list[asyncio.Future[None]], self._pongs)

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        self._pongs.append(self._loop.create_future() if future is None else future)
        self._pings_due += 1
        self._kick()

    async def _connect_to_server(self, s: Srv) -> None:
        if self._finished:
            # What nats-py takes for its own cancellation, should it have missed that.
            raise asyncio.CancelledError
        s.last_attempt = time.monotonic()
        self._wire.abort()
        self._wire = Wire(self._interests.receive, self._kick)
        self._transport = cast(Any, self._wire)
        with anyio.fail_after(CONNECT_TIMEOUT_S):
            await self._loop.create_connection(lambda: self._wire, s.uri.hostname or "", s.uri.port or 4222)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        server = self._current_server
        wants_tls = initial_connection and server is not None and server.uri.scheme == "tls"
        if wants_tls and not info.get("tls_required"):
            # nats-py would send the credentials in the clear.
            raise errors.Error("nats: 'its URL says tls, but it offers none'")
        await super()._process_info(info, initial_connection)

    async def _read_loop(self) -> None:
        wire = self._wire
        while not (self.is_closed or self.is_reconnecting):
            line = await wire.readline()
            if not line:
                await self._process_op_err(errors.UnexpectedEOF())
            elif line.startswith(b"PING"):
                self._queue_line(b"PONG\r\n")
            elif line.startswith(b"PONG"):
                self._pings_outstanding = 0
                pongs = self._waiting_pongs()
                if pongs and not (pong := pongs.pop(0)).done():
                    pong.set_result(None)
            elif line.startswith(b"INFO"):
                await self._process_info(json.loads(line[5:]))
            elif line.startswith(b"-ERR"):
                self._on_refusal(line[5:].decode("utf-8", "replace").strip())

    def _on_refusal(self, text: str) -> None:
        # What is fatal the broker follows with the end of the connection, and we reconnect; nats-py would
        # close for good.
        log.warning("broker error", error=text)
        found = _DENIED.search(text)
        if found is None:
            return
        subject = found[2]
        if found[1].lower() == "publish":
            self._requests.deny(subject, f"the broker does not let these credentials publish to {subject!r}")
        else:
            self._interests.deny(subject)

    async def _attempt_reconnect(self) -> None:
        self._set_down("the connection to the broker broke")
        # Unsent bytes to a frozen broker would keep nats-py waiting for the old socket to close.
        self._wire.abort()
        while not self.is_closed:
            try:
                await super()._attempt_reconnect()
            except Exception:
                # Whatever it was: nothing else would ever try again.
                log.exception("reconnecting failed")
                await anyio.sleep(RECONNECT_S[1])
            else:
                return

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        if not self._dialling:
            self._finished = True
            self._set_down("the connection to the broker is closed")
            self._is_up.set()
            self._wake_room()
        if self._wire.paused:
            self._wire.abort()
            self._pending, self._pending_data_size = [], 0
        try:
            with anyio.move_on_after(CLOSE_S):
                await super()._close(status, do_cbs)
            if self._finished:
                await self._end_reconnecting()
        finally:
            self._wire.abort()

    async def _end_reconnecting(self) -> None:
        """See that nothing tries to connect any more.

        nats-py cancels that once, and `asyncio.wait_for` of Python 3.11 loses a cancellation that comes
        together with what it waits for: the task went on for ever, and the event loop could not be closed.
        """
        task = self._reconnection_task
        if task is not None and task is not asyncio.current_task():
            with anyio.move_on_after(CLOSE_S):
                while not task.done():
                    task.cancel()
                    await asyncio.wait([task], timeout=CANCEL_AGAIN_S)
        self._status = Client.CLOSED

    def _choose(self, servers: list[Server], info: dict[str, Any]) -> tuple[Server | None, float]:
        """The server that failed least, not the one just lost; after a jittered wait that grows.

        Thousands may reconnect at once.
        """
        lost = self._current_server.uri if self._current_server else None
        random.shuffle(servers)
        server = min(servers, key=lambda server: (server.reconnects, server.uri == lost))
        first_s, most_s = RECONNECT_S
        limit_s = min(most_s, first_s * 2.0 ** min(server.reconnects + 1, 10))
        return server, random.uniform(0.0, limit_s)

    async def _on_reconnected(self) -> None:
        self._is_up.set()
        for changed in list(self._watchers):
            changed(True)

    async def _on_error(self, error: Exception) -> None:
        if self._dialling:
            if isinstance(error, FileNotFoundError | PermissionError | ssl.SSLError) or (
                isinstance(error, errors.Error) and str(error).startswith("nats: '")
            ):
                raise error
        elif not isinstance(error, OSError | errors.UnexpectedEOF):
            log.warning("broker connection", error=repr(error))


def connect(
    url: str | Sequence[str],
    *,
    prefix: str = "gym",
    name: str = "gym-runtime",
    role: Role = "client",
    credentials: Path | None = None,
    tls: ssl.SSLContext | None = None,
    replicas: int | None = None,
) -> AbstractAsyncContextManager[NatsBus]:
    """Connect to a broker, or to one of a cluster; ``async with connect(url) as bus``.

    User and password, or a token, stand in the URL; ``credentials`` is a file with an NKey seed or a NATS
    ``.creds`` file. It and ``tls`` come from the environment where they are not given
    (`gym_runtime.bus.identity`). ``role`` names our inboxes, so that a broker can keep roles apart.

    A client creates the streams that are missing; a worker does so when it needs one. Each is kept
    ``replicas`` times, by default three in a cluster and once on a single broker; existing ones keep their
    operator's settings. Leaving the context sends what is buffered and disconnects. Like a task group, of
    which it holds one, it is left by the task that entered it, and after what was entered later.

    Raises:
        BrokerError: Within five seconds: unreachable, bad credentials, no JetStream, or it takes messages
            that are too small. The message says what to do.
        UsageError: A URL or the prefix is none, or a file cannot be used.
    """
    where, names = addresses.parse(url), Names(prefix)
    credentials = credentials or credentials_for(where)
    return _connected(where, names, name, role, credentials, tls or trust(), replicas)


@asynccontextmanager
async def _connected(
    where: Addresses,
    names: Names,
    name: str,
    role: Role,
    credentials: Path | None,
    tls: ssl.SSLContext | None,
    replicas: int | None,
) -> AsyncGenerator[NatsBus]:
    link = Connection(names.inbox(role))
    failure: Exception | None = None
    await link.dial(where, name=name, credentials=credentials, tls=tls)
    try:
        async with anyio.create_task_group() as tasks:
            bus = NatsBus(link, names, replicas, tasks)
            try:
                await bus.open(create=role == "client")
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
