"""One connection that speaks HTTP/1.1 without TLS: one request at a time, whose answer llhttp parses.

The engine may be hostile. What an answer takes of memory is bounded (`limited_answer`, `MAX_HEAD_BYTES`), and
whatever is not HTTP to the letter ends the connection, so that no byte of one answer is taken for another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, cast

import httptools

from gym_models.wire import limited_answer, no_answer
from gym_models.wire.no_answer import NoAnswer
from gym_models.wire.sockets import probe

MAX_HEAD_BYTES = 256 * 1024
"""All headers and trailers of one answer, and whatever else is neither a header nor a piece of the body."""
PIECE_BYTES = 4096
_WITHOUT_BODY = (204, 304)


class Reply(NamedTuple):
    """An HTTP answer, whole and still packed. ``headers``: names in lower case, the first of each."""

    status: int
    headers: dict[str, str]
    body: bytes


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
            raise NoAnswer(no_answer.BROKE, "it was closed before the request was sent")
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
            known = isinstance(cause, NoAnswer | limited_answer.TooLarge)
            self._fail(cause if known else NoAnswer(no_answer.NOT_HTTP))
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # Without its cause: the parser may quote a line that holds the key.
            self._fail(NoAnswer(no_answer.NOT_HTTP))
        else:
            if self._unparsed_bytes > MAX_HEAD_BYTES:
                self._fail(NoAnswer(no_answer.NOT_HTTP))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.reusable = False
        if self._until_close and exc is None:
            self._finish()
        self._fail(NoAnswer(no_answer.BROKE, str(exc or "it was closed")))
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
            raise NoAnswer(no_answer.NOT_HTTP)
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
            raise NoAnswer(no_answer.NOT_HTTP)  # no other coding was asked for
        self._until_close = length is None and coding is None and status not in _WITHOUT_BODY
        self._limit = limited_answer.limit_bytes(status)
        if length is not None and status < 300 and int(length) > self._limit:
            raise limited_answer.TooLarge

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
                raise limited_answer.TooLarge
            self.reusable = False  # of an error the beginning is enough
            self._finish()

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
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
