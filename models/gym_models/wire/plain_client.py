"""HTTP/1.1 without TLS or proxies, for engines on this machine or in a private network.

A call costs a quarter of what it costs over aiohttp (docs/explanation/benchmarks.md). There are as many
connections as calls in flight; a quiet one is used again, the last one first.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

import anyio
from anyio.lowlevel import checkpoint
from gym_runtime import UsageError

from gym_models.wire import no_answer
from gym_models.wire.no_answer import NoAnswer
from gym_models.wire.plain_connection import PlainConnection, Reply
from gym_models.wire.sockets import (
    ADDRESSES_S,
    CONNECT_S,
    KEEP_ALIVE_S,
    OPENING_AT_ONCE,
    most_connections,
)


class PlainClient:
    """Connections to the engine at ``url``. Enter it before use.

    ``reuse`` false opens one per call, for engines that close connections unannounced. ``headers`` go with
    every request.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, reuse: bool) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        place = _ascii(parts.netloc)
        fixed = {"host": place, **headers, **({} if reuse else {"connection": "close"})}
        self._fixed = "".join(f"{name}: {value}\r\n" for name, value in fixed.items())
        self._reuse = reuse
        self._heads: dict[tuple[str, str], str] = {}
        self._open: set[PlainConnection] = set()
        self._idle: deque[PlainConnection] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._addresses: deque[tuple[str, int]] = deque()
        self._addresses_until_s = 0.0

    async def __aenter__(self) -> PlainClient:
        self._loop = asyncio.get_running_loop()
        self._calls = anyio.Semaphore(most_connections(), fast_acquire=True)
        self._opening = anyio.Semaphore(OPENING_AT_ONCE, fast_acquire=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._open):
            connection.abort()
        await checkpoint()  # the loop closes them

    async def request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str] | None, limit_s: float
    ) -> Reply:
        """The answer to a request, whatever its status; see `PlainConnection.exchange`.

        Raises:
            NoAnswer: also where no connection can be opened.
        """
        end_s = self._loop.time() + limit_s
        head, body = self._head(method, url, body, headers), body or b""
        try:
            # As nearly always: `acquire` takes ten times as long where a place is free.
            self._calls.acquire_nowait()
        except anyio.WouldBlock:
            await self._calls.acquire()
        try:
            quiet = self._quiet()
            if quiet is not None:
                try:
                    return await self._exchange(quiet, head, body, end_s)
                except NoAnswer as error:
                    # It was closed meanwhile. To ask again may generate twice; a GET changes nothing.
                    if method != "GET" or error.said != no_answer.BROKE:
                        raise
            with anyio.fail_after(end_s - self._loop.time()):
                connection = await self._connect()
            return await self._exchange(connection, head, body, end_s)
        finally:
            self._calls.release()

    async def _exchange(self, connection: PlainConnection, head: bytes, body: bytes, end_s: float) -> Reply:
        reply = await connection.exchange(head, body, end_s - self._loop.time())
        if not self._reuse:
            connection.abort()
        elif connection.reusable:
            self._keep(connection)
        return reply

    def _head(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str] | None) -> bytes:
        head = self._heads.get((method, url))
        if head is None:
            parts = urlsplit(url)
            target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
            if parts.query:
                target += "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~?")
            head = self._heads[method, url] = f"{method} {target} HTTP/1.1\r\n{self._fixed}"
        if headers:
            more = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
            if more.count("\n") != len(headers) or more.count("\r") != len(headers) or "\0" in more:
                raise UsageError(f"a line break within one of the headers {', '.join(headers)}")
            head += more
        if body is None:
            return f"{head}\r\n".encode()
        return f"{head}content-length: {len(body)}\r\n\r\n".encode()

    # -- connections ------------------------------------------------------------------------------------

    def _quiet(self) -> PlainConnection | None:
        expired_s = self._loop.time() - KEEP_ALIVE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.closed:
                continue
            if connection.idle_since_s > expired_s:
                return connection
            connection.abort()
        return None

    def _keep(self, connection: PlainConnection) -> None:
        connection.idle_since_s = self._loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEEP_ALIVE_S, self._close_expired)

    def _close_expired(self) -> None:
        expired_s = self._loop.time() - KEEP_ALIVE_S
        while self._idle and (self._idle[0].closed or self._idle[0].idle_since_s <= expired_s):
            self._idle.popleft().abort()
        self._sweep = self._loop.call_later(KEEP_ALIVE_S, self._close_expired) if self._idle else None

    async def _connect(self) -> PlainConnection:
        async with self._opening:
            failed: OSError | None = None
            for host, port in await self._resolve():
                try:
                    with anyio.fail_after(CONNECT_S):
                        return await self._connect_to(host, port)
                except OSError as error:  # a TimeoutError, too
                    failed = error
        match failed:
            case ConnectionRefusedError():
                raise NoAnswer(no_answer.REFUSED) from failed
            case TimeoutError():
                raise NoAnswer(no_answer.NO_CONNECTION, f"none within {CONNECT_S:.0f} s") from failed
            case _:
                raise NoAnswer(no_answer.NO_CONNECTION, str(failed or "no address")) from failed

    async def _connect_to(self, host: str, port: int) -> PlainConnection:
        connection = PlainConnection(self._loop, self._open.discard)
        try:
            await self._loop.create_connection(lambda: connection, host, port)
        except BaseException:
            connection.abort()
            raise
        self._open.add(connection)
        return connection

    async def _resolve(self) -> list[tuple[str, int]]:
        """The host's addresses, looked up every minute; each call begins with another one."""
        if self._loop.time() >= self._addresses_until_s:
            try:
                found = await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:
                raise NoAnswer(no_answer.UNRESOLVED) from error
            self._addresses = deque((str(address[0]), int(address[1])) for *_, address in found)
            self._addresses_until_s = self._loop.time() + ADDRESSES_S
        addresses = list(self._addresses)
        self._addresses.rotate(-1)
        return addresses


def _ascii(place: str) -> str:
    """A host, as it is written in a header."""
    try:
        return place if place.isascii() else place.encode("idna").decode()
    except UnicodeError as error:
        raise UsageError(f"{place!r} cannot be the name of a host") from error
