"""HTTP/1.1 without TLS or proxies, for engines on this machine or in a private network.

A call costs a quarter of what it costs over aiohttp (docs/explanation/benchmarks.md). There are as many
connections as calls in flight; a quiet one is used again, the last one first.

The engine may be hostile. What an answer takes of memory is bounded (`reply`, `MAX_HEAD_BYTES`), and
whatever is not HTTP to the letter ends the connection, so that no byte of one answer is taken for another's.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import cast
from urllib.parse import quote, urlsplit

import anyio
import httptools
from anyio.lowlevel import checkpoint
from gym_runtime import UsageError

from gym_models.wire.reply import (
    BROKE,
    NO_CONNECTION,
    NOT_HTTP,
    READING,
    REFUSED,
    UNRESOLVED,
    NoAnswer,
    Reply,
    TooLarge,
    limit_bytes,
)
from gym_models.wire.sockets import (
    ADDRESSES_S,
    CONNECT_S,
    KEEP_ALIVE_S,
    OPENING_AT_ONCE,
    most_connections,
    probe,
)

MAX_HEAD_BYTES = 256 * 1024
"""All headers and trailers of one answer, and whatever else is neither a header nor a piece of the body."""
PIECE_BYTES = 4096
_WITHOUT_BODY = (204, 304)


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
        self._calls = asyncio.Semaphore(most_connections())
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
        async with self._calls:
            quiet = self._quiet()
            if quiet is not None:
                try:
                    return await self._exchange(quiet, head, body, end_s)
                except NoAnswer as error:
                    # It was closed meanwhile. To ask again may generate twice; a GET changes nothing.
                    if method != "GET" or error.said != BROKE:
                        raise
            with anyio.fail_after(end_s - self._loop.time()):
                connection = await self._connect()
            return await self._exchange(connection, head, body, end_s)

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
                raise NoAnswer(REFUSED) from failed
            case TimeoutError():
                raise NoAnswer(NO_CONNECTION, f"none within {CONNECT_S:.0f} s") from failed
            case _:
                raise NoAnswer(NO_CONNECTION, str(failed or "no address")) from failed

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
                raise NoAnswer(UNRESOLVED) from error
            self._addresses = deque((str(address[0]), int(address[1])) for *_, address in found)
            self._addresses_until_s = self._loop.time() + ADDRESSES_S
        addresses = list(self._addresses)
        self._addresses.rotate(-1)
        return addresses


class PlainConnection(asyncio.Protocol):
    """A connection of `gym_models.wire.plain_client.PlainClient`.

    ``reusable``: whether the next request may be sent over it. ``lost`` is called once it is closed.
    """

    __slots__ = (
        "_answer",
        "_body",
        "_bytes",
        "_head_bytes",
        "_headers",
        "_in_trailers",
        "_limit",
        "_loop",
        "_lost",
        "_parser",
        "_status",
        "_transport",
        "_unparsed_bytes",
        "_until_close",
        "closed",
        "idle_since_s",
        "reusable",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, lost: Callable[[PlainConnection], None]) -> None:
        self._loop = loop
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        # What aiohttp allows in answers, too: it changes nothing in where an answer ends.
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self.closed = False
        self.reusable = True
        self.idle_since_s = 0.0
        self._status = 0
        self._body: list[bytes | bytearray] = []
        self._begin()

    def _begin(self) -> None:
        self._headers: dict[str, str] = {}
        self._head_bytes = self._unparsed_bytes = self._bytes = 0
        self._body = []
        self._limit = 0
        self._until_close = self._in_trailers = False

    # -- the client's side ------------------------------------------------------------------------------

    async def exchange(self, head: bytes, body: bytes, limit_s: float) -> Reply:
        """Send a request and return its answer. A call that is cancelled closes the connection.

        Raises:
            NoAnswer: the connection broke before the answer was complete, or what came is not HTTP.
            TooLarge: the answer is larger than it may be.
            TimeoutError: ``limit_s`` seconds passed.
        """
        transport = self._transport
        if transport is None or self.closed:
            raise NoAnswer(BROKE, "it was closed before the request was sent")
        self._begin()
        answer = self._answer = self._loop.create_future()
        timer = self._loop.call_later(limit_s, self._fail, TimeoutError())
        try:
            if len(body) < 1 << 16:
                transport.write(head + body)
            else:
                transport.writelines((head, body))
            return await answer
        except BaseException:
            self.abort()
            raise
        finally:
            self._answer = None
            timer.cancel()
            READING.ended(self)
            # An answer that overtook its request (413): the rest of the request would be the next one's.
            if not self.reusable or transport.get_write_buffer_size():
                self.abort()

    def abort(self) -> None:
        """Close at once, and drop what was not sent."""
        self.closed = True
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    # -- the loop's side --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        if self.closed:  # it was given up while it was opened
            made.abort()
            return
        probe(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if self._answer is None or parser is None:
            self.abort()  # it says something unasked
            return
        self._unparsed_bytes += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            known = isinstance(cause, NoAnswer | TooLarge)
            self._fail(cause if known else NoAnswer(NOT_HTTP))
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # Without its cause: the parser may quote a line that holds the key.
            self._fail(NoAnswer(NOT_HTTP))
        else:
            if self._unparsed_bytes > MAX_HEAD_BYTES:
                self._fail(NoAnswer(NOT_HTTP))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.reusable = False
        if self._until_close and exc is None:
            self._finish()
        self._fail(NoAnswer(BROKE, str(exc or "it was closed")))
        self._parser = self._transport = None  # both refer to this object
        self._lost(self)

    # -- the parser's side ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.done():
            self.reusable = False  # an answer to no request

    def on_header(self, name: bytes, value: bytes) -> None:
        self._unparsed_bytes = 0
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > MAX_HEAD_BYTES:
            raise NoAnswer(NOT_HTTP)
        if not self._in_trailers:
            self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._status = status = self._parser.get_status_code()
        if status < 200:  # 100 Continue and the like; the answer follows
            self._headers = {}
            return
        self._in_trailers = True
        length, coding = self._headers.get("content-length"), self._headers.get("transfer-encoding")
        if coding is not None and coding.strip().lower() != "chunked":
            raise NoAnswer(NOT_HTTP)  # no other coding was asked for
        self._until_close = length is None and coding is None and status not in _WITHOUT_BODY
        self._limit = limit_bytes(status)
        if length is not None and status < 300 and int(length) > self._limit:
            raise TooLarge

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        self._bytes += len(body)
        # As pieces, which are joined once: an answer with token ids has megabytes. Small ones are put
        # together, because an object for each byte would take forty times as much memory.
        last = self._body[-1] if self._body else b""
        if isinstance(last, bytearray) and len(body) < PIECE_BYTES:
            last += body
        else:
            self._body.append(bytearray(body) if last and len(body) < PIECE_BYTES else body)
        if self._bytes > self._limit:
            if self._status < 300:
                raise TooLarge
            self.reusable = False  # of an error the beginning is enough
            self._finish()
        elif self._transport is not None and READING.waits(self, self._bytes, self._go_on):
            self._transport.pause_reading()

    def _go_on(self) -> None:
        if self._transport is not None and not self.closed:
            self._transport.resume_reading()

    def on_message_complete(self) -> None:
        if self._status >= 200:
            assert self._parser is not None
            if not self._parser.should_keep_alive():
                self.reusable = False
            self._finish()

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            # `join` does not copy a single piece.
            whole, self._body = b"".join(self._body), []
            self._answer.set_result(Reply(self._status, self._headers, whole[: self._limit]))

    def _fail(self, error: BaseException) -> None:
        self.reusable = False
        # The error's traceback refers to this connection, and so keeps the answer until a garbage collection.
        self._body = []
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


def _ascii(place: str) -> str:
    """A host, as it is written in a header."""
    try:
        return place if place.isascii() else place.encode("idna").decode()
    except UnicodeError as error:
        raise UsageError(f"{place!r} cannot be the name of a host") from error
