"""The NATS wire: bytes from one socket, cut into messages and lines; and the headers of a message.

`Wire` is what the client library calls a transport. It hands a message to a plain function from inside
the event loop's read callback: no queue, no task and no header parsing lie between the socket and the
subscriber. Everything that is not a message (INFO, PING, PONG, +OK, -ERR) is rare and read as lines.

Invariants: messages are handed over in order of arrival; after ``abort`` or the loss of the connection
`Wire.readline` returns ``b""`` and nothing waits any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, cast

import anyio

from gym_runtime.bus.interface import Headers
from gym_runtime.errors import UsageError

CRLF = b"\r\n"
NO_RESPONDERS = b"NATS/1.0 503"
MAX_LINE_BYTES = 1024 * 1024
"""The longest line a broker sends: INFO, which names every server of a cluster."""

_HEADER_NAME = re.compile(r"[!-9;-~]+")


class Receive(Protocol):
    """Takes one message: subscription id, subject, reply subject, raw headers, payload."""

    def __call__(self, sid: int, subject: bytes, reply: bytes, header: bytes, payload: bytes, /) -> None: ...


class Wire(asyncio.Protocol):
    """One connection. The names of its methods are those that the client library calls.

    ``receive`` must not raise. ``resume`` is called when the socket takes bytes again.
    """

    def __init__(self, receive: Receive, resume: Callable[[], None]) -> None:
        self._receive = receive
        self._resume = resume
        self._context = _callback_context()
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._have = 0
        self._need = 0
        self._lines: deque[bytes] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._lost = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def paused(self) -> bool:
        """Whether the socket's buffer is full, or the connection gone."""
        return not self._writable.is_set() or self._lost.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self._writable.set()
        self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        self._resume()

    def data_received(self, data: bytes) -> None:
        if self._parts:
            # A large message arrives in many pieces: they are joined once, when it is complete.
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            data = b"".join(self._parts)
            self._parts = []
        try:
            used = self._context.run(self._cut, data)
        except (ValueError, IndexError):
            # The stream is out of step and cannot be read any further.
            self.abort()
            return
        if used < len(data):
            self._parts = [data[used:]]
            self._have = len(data) - used
            if self._need == 0 and self._have > MAX_LINE_BYTES:
                self.abort()

    def _cut(self, data: bytes) -> int:
        """Hand over what is complete in ``data``; returns how many bytes that was.

        ``_need`` becomes the size of the message that is not complete yet, 0 when that is unknown.
        """
        at, end, receive = 0, len(data), self._receive
        self._need = 0
        while at < end:
            eol = data.find(CRLF, at)
            if eol < 0:
                break
            if data.startswith(b"MSG ", at):
                words = data[at + 4 : eol].split()
                start = eol + 2
                stop = start + int(words[-1])
                if stop + 2 > end:
                    self._need = stop + 2 - at
                    break
                reply = words[2] if len(words) == 4 else b""
                receive(int(words[1]), words[0], reply, b"", data[start:stop])
                at = stop + 2
            elif data.startswith(b"HMSG ", at):
                words = data[at + 5 : eol].split()
                start = eol + 2
                middle, stop = start + int(words[-2]), start + int(words[-1])
                if stop + 2 > end:
                    self._need = stop + 2 - at
                    break
                reply = words[2] if len(words) == 5 else b""
                receive(int(words[1]), words[0], reply, data[start:middle], data[middle:stop])
                at = stop + 2
            else:
                self._lines.append(data[at : eol + 2])
                at = eol + 2
        if self._lines:
            self._wake()
        return at

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def readline(self) -> bytes:
        """The next line that is not a message, with its end; ``b""`` when the connection is gone."""
        while not self._lines:
            if self._lost.is_set():
                return b""
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._lines.popleft()

    def write(self, payload: bytes) -> None:
        if self._transport is not None and not self._lost.is_set():
            self._transport.write(payload)

    def writelines(self, payload: Iterable[bytes]) -> None:
        self.write(b"".join(payload))

    async def drain(self) -> None:
        """Wait until the socket takes bytes.

        Raises:
            ConnectionResetError: The connection is gone.
        """
        await self._writable.wait()
        if self._lost.is_set():
            raise ConnectionResetError("connection lost")

    async def connect_tls(
        self, uri: str, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: float
    ) -> None:
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        with anyio.fail_after(connect_timeout):
            upgraded = await loop.start_tls(self._transport, self, ssl_context, server_hostname=uri)
        self._transport = cast(asyncio.Transport, upgraded)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close without sending what is buffered."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        if self._transport is not None:
            await self._lost.wait()


def _callback_context() -> contextvars.Context:
    """The context in which messages are handed over: empty, so that nothing of who connected leaks in.

    But anyio can start tasks there. Where sniffio is installed, anyio asks it for the event loop, and it
    looks for a running task, which a read callback is not, or for this variable.
    """
    context = contextvars.Context()
    try:
        from sniffio import current_async_library_cvar
    except ImportError:
        return context
    context.run(current_async_library_cvar.set, "asyncio")
    return context


def encode_headers(headers: Headers) -> bytes:
    """The raw form of headers, which begins with the protocol's version line.

    Raises:
        UsageError: A name is not a token, or a value contains a line break.
    """
    lines = ["NATS/1.0"]
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or "\r" in value or "\n" in value:
            raise UsageError(f"header {name!r}: names are visible ASCII without ':', values are one line")
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def decode_headers(header: bytes) -> dict[str, str]:
    """Names and values of raw headers; the version and status line is left out, bad lines are skipped."""
    found: dict[str, str] = {}
    for line in header.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found[name] = value.strip()
    return found


def status(header: bytes) -> int:
    """The status code in raw headers, such as 404 or 503; 0 for an ordinary message."""
    return int(header[9:12]) if header.startswith(b"NATS/1.0 ") and header[9:12].isdigit() else 0


def description(header: bytes) -> str:
    """The text after the status code."""
    return header[12 : header.find(CRLF)].decode("utf-8", "replace").strip()
