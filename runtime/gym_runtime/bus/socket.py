"""One TCP connection to a broker: the asyncio shell around `gym_runtime.bus.protocol`.

Messages go from the event loop's read callback to a plain function; no task lies between. Lines are kept for
`Socket.readline` while the two sides introduce themselves, and handed to a function afterwards.

Invariant: after ``abort`` or the loss of the connection ``lost`` is set and nothing waits any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import ssl
import sys
from collections import deque
from collections.abc import Callable
from typing import cast

from gym_runtime.bus.protocol import Decoder, OutOfStep, Receive

# With asyncio's own `writelines` of these versions a buffer grows without end (CVE-2024-12254).
_UNPAUSED = (3, 12) <= sys.version_info < (3, 12, 9) or (3, 13) <= sys.version_info < (3, 13, 2)


class Traffic:
    """Bytes that passed, as they are on the wire; without TLS's own."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0


class Socket(asyncio.Protocol):
    """A connection as asyncio calls it back.

    ``receive`` must not raise. ``resume`` is called when the socket takes bytes again. ``traffic`` counts.

    Attributes:
        lost: set when the connection is gone.
        failure: why it is gone, where that is known.
    """

    def __init__(self, receive: Receive, resume: Callable[[], None], traffic: Traffic | None = None) -> None:
        self.lost = asyncio.Event()
        self.failure: Exception | None = None
        self._resume = resume
        self._traffic = traffic or Traffic()
        self._decoder = Decoder(receive, self._on_line)
        self._context = _callback_context()
        self._transport: asyncio.Transport | None = None
        self._take_line: Callable[[bytes], None] | None = None
        self._lines: deque[bytes] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._full = False

    @property
    def paused(self) -> bool:
        """Whether the socket's buffer is full, or the connection gone."""
        return self._full or self.lost.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio names the base class; over TCP it is this one.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        # The first cause counts: after `abort` asyncio reports none.
        self.failure = self.failure or exc
        self.lost.set()
        self._wake()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._resume()

    def data_received(self, data: bytes) -> None:
        self._traffic.received_bytes += len(data)
        try:
            self._context.run(self._decoder.feed, data)
        except OutOfStep as error:
            self.failure = error
            self.abort()

    def _on_line(self, line: bytes) -> None:
        if self._take_line is not None:
            self._take_line(line)
        else:
            self._lines.append(line)
            self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def readline(self) -> bytes:
        """The next line that is not a message.

        Raises:
            OSError: The connection is gone.
        """
        while not self._lines:
            if self.lost.is_set():
                raise self.failure or ConnectionResetError("the broker closed the connection")
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._lines.popleft()

    def hand_lines_to(self, take: Callable[[bytes], None]) -> None:
        """From here on lines go to a function, which must not raise."""
        # Before the function is set, so that the order is kept.
        while self._lines:
            take(self._lines.popleft())
        self._take_line = take

    async def start_tls(self, context: ssl.SSLContext, hostname: str) -> None:
        """Go on in TLS.

        Raises:
            OSError: The other side does not, or its certificate does not hold (`ssl.SSLError` is one).
        """
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        upgraded = await loop.start_tls(self._transport, self, context, server_hostname=hostname)
        self._transport = cast(asyncio.Transport, upgraded)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self.lost.is_set():
            self._traffic.sent_bytes += len(data)
            self._transport.write(data)

    def write_parts(self, parts: list[bytes]) -> None:
        """As `write`, without joining them."""
        if self._transport is not None and not self.lost.is_set():
            self._traffic.sent_bytes += sum(map(len, parts))
            if _UNPAUSED and type(self._transport).__module__.startswith("asyncio."):
                self._transport.write(b"".join(parts))
            else:
                self._transport.writelines(parts)

    def close(self) -> None:
        """Close once everything written is sent."""
        if self._transport is not None:
            self._transport.close()
        else:
            # Never connected: `connection_lost` will not be called.
            self.lost.set()

    def abort(self) -> None:
        """Close without sending what is buffered; nothing if it is lost."""
        if self._transport is None:
            # As in `close`.
            self.lost.set()
        elif not self.lost.is_set():
            # asyncio's own transport fails if it is aborted after it closed with something left to send.
            self._transport.abort()


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
