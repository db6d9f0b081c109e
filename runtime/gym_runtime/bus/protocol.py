"""The NATS protocol without input or output: bytes in, messages and lines out; commands in, bytes out.

`Decoder` cuts what a broker sent into messages, which it hands to a plain function one by one, and into
lines: everything else that a broker says (INFO, PING, PONG, +OK, -ERR), which is rare. No queue, no object
and no header parsing lie between the bytes and that function, because this is the hot path. The other
functions make the bytes of commands, and read and write headers.

Invariants: messages and lines come in order, each once, however the bytes were split.

Source: https://docs.nats.io/reference/reference-protocols/nats-protocol
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from gym_runtime.bus.interface import Headers
from gym_runtime.errors import UNREADABLE, UsageError

CRLF = b"\r\n"
PING = b"PING\r\n"
PONG = b"PONG\r\n"
NO_RESPONDERS = b"NATS/1.0 503"
MAX_LINE_BYTES = 1024 * 1024
"""The longest line a broker sends: INFO, which names every server of a cluster."""

# Visible ASCII without the colon, which ends a name.
_HEADER_NAME = re.compile(r"[!-9;-~]+")


class OutOfStep(Exception):
    """What a broker sent is not the NATS protocol, so nothing after it can be read."""


class Receive(Protocol):
    """Takes one message: subscription id, subject, reply subject, raw headers, payload. Must not raise."""

    def __call__(self, sid: int, subject: bytes, reply: bytes, header: bytes, payload: bytes, /) -> None: ...


class _Begun(NamedTuple):
    """A message whose end has not come yet. Offsets are those from the beginning of its line."""

    sid: int
    subject: bytes
    reply: bytes
    header: int
    payload: int
    end: int


class Decoder:
    """What one connection receives. ``line`` takes a line without its end, and must not raise."""

    def __init__(self, receive: Receive, line: Callable[[bytes], None]) -> None:
        self._receive = receive
        self._line = line
        self._parts: list[bytes] = []
        self._have = 0
        self._begun: _Begun | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes, and hand over what is complete.

        Raises:
            OutOfStep: This is not the protocol; the connection is of no more use.
        """
        if self._parts:
            # A large message arrives in many pieces: they are joined once, when it is complete.
            self._parts.append(data)
            self._have += len(data)
            if self._begun is not None and self._have < self._begun.end + len(CRLF):
                return
            data = self._joined()
        try:
            used = self._cut(data)
        # Damaged numbers and missing words: cheaper to catch here than to check in each message.
        except (ValueError, IndexError) as error:
            raise OutOfStep(str(error)) from error
        if used < len(data):
            self._parts = [data[used:]]
            self._have = len(data) - used
            # Without a limit a peer that never ends a line would fill the memory.
            if self._begun is None and self._have > MAX_LINE_BYTES:
                raise OutOfStep(f"a line of more than {MAX_LINE_BYTES} bytes")

    def _joined(self) -> bytes:
        """What has come in pieces and is still to be cut.

        A payload is joined by itself and handed over, because it would have to be copied out again.
        """
        parts, begun, self._parts = self._parts, self._begun, []
        first, last = parts[0], parts[-1]
        # Of the payload in the last piece; the line's end may come alone.
        tail = begun.end - self._have + len(last) if begun is not None else 0
        if begun is None or tail <= 0 or begun.payload > min(len(first), begun.end):
            return b"".join(parts)
        payload = b"".join((memoryview(first)[begun.payload :], *parts[1:-1], memoryview(last)[:tail]))
        self._receive(begun.sid, begun.subject, begun.reply, first[begun.header : begun.payload], payload)
        return last[tail + len(CRLF) :]

    def _cut(self, data: bytes) -> int:
        """Hand over what is complete in ``data``; returns how many bytes that was.

        ``_begun`` becomes the message that is not complete yet, None where its line is not complete either.
        """
        # Local names: this loop runs for every message of the process.
        at, end, receive = 0, len(data), self._receive
        self._begun = None
        while at < end:
            eol = data.find(CRLF, at)
            if eol < 0:
                break
            # Most frequent first.
            if data.startswith(b"MSG ", at):
                words = data[at + 4 : eol].split()
                start = eol + 2
                stop = start + int(words[-1])
                # The reply subject is optional, and stands before the sizes.
                reply = words[2] if len(words) == 4 else b""
                if stop + 2 > end:
                    self._begun = _Begun(int(words[1]), words[0], reply, start - at, start - at, stop - at)
                    break
                receive(int(words[1]), words[0], reply, b"", data[start:stop])
                at = stop + 2
            elif data.startswith(b"HMSG ", at):
                words = data[at + 5 : eol].split()
                start = eol + 2
                middle, stop = start + int(words[-2]), start + int(words[-1])
                reply = words[2] if len(words) == 5 else b""
                if stop + 2 > end:
                    self._begun = _Begun(int(words[1]), words[0], reply, start - at, middle - at, stop - at)
                    break
                receive(int(words[1]), words[0], reply, data[start:middle], data[middle:stop])
                at = stop + 2
            else:
                self._line(data[at:eol])
                at = eol + 2
        return at


class Info(msgspec.Struct, frozen=True):
    """What a broker says of itself; it says so again when its cluster changes.

    Attributes:
        max_payload: the largest message it takes, headers included, in bytes.
        nonce: to be signed, where keys are asked for.
        connect_urls: ``host:port`` of every server of the cluster.
        cluster: its name, or empty.
        jetstream: it stores streams itself; a leaf of another site does not.
        ldm: "lame duck mode": it is about to close its connections.
    """

    max_payload: int = 1024 * 1024
    nonce: str = ""
    tls_required: bool = False
    tls_available: bool = False
    connect_urls: list[str] = []
    cluster: str = ""
    jetstream: bool = False
    ldm: bool = False


def decode_info(line: bytes) -> Info:
    """The broker's INFO line.

    Raises:
        OutOfStep: It is another line, or damaged.
    """
    try:
        return _decode_info(line.removeprefix(b"INFO "))
    except UNREADABLE as error:
        raise OutOfStep(f"{line[:40]!r} instead of INFO: {error}") from error


_decode_info = msgspec.json.Decoder(Info).decode


def connect_command(name: str, proof: dict[str, str], *, tls: bool) -> bytes:
    """The client's introduction; ``proof`` holds the fields that say who it is."""
    options: dict[str, Any] = {
        # Verbose brokers confirm each message with a +OK line.
        "verbose": False,
        "pedantic": False,
        "tls_required": tls,
        "name": name,
        "lang": "python-gym-runtime",
        "version": "1",
        # Protocol 1: the broker says when servers join or leave its cluster.
        "protocol": 1,
        # A process may serve what it asks itself.
        "echo": True,
        "headers": True,
        # So a request to a dead worker fails within a millisecond; it needs headers.
        "no_responders": True,
        **proof,
    }
    return b"CONNECT " + msgspec.json.encode(options) + CRLF


def subscribe_command(sid: int, subject: str, queue: str = "") -> bytes:
    """Ask for what is sent to a subject or pattern, as one of a queue where it is named."""
    # Two spaces, where the queue is empty, count as one for the broker; so with the reply subject of PUB.
    return f"SUB {subject} {queue} {sid}\r\n".encode()


def unsubscribe_command(sid: int) -> bytes:
    """End a subscription."""
    return f"UNSUB {sid}\r\n".encode()


def publish_command(subject: str, reply: str, header_bytes: int, total_bytes: int) -> bytes:
    """The line before a message: raw headers (if there are any), payload and `CRLF` follow."""
    if header_bytes:
        return f"HPUB {subject} {reply} {header_bytes} {total_bytes}\r\n".encode()
    return f"PUB {subject} {reply} {total_bytes}\r\n".encode()


def encode_headers(headers: Headers, known: str = "") -> bytes:
    """The raw form of headers, which begins with the protocol's version line.

    Args:
        known: lines that need no check, without the last line break.

    Raises:
        UsageError: A name is not a token, or a value contains a line break.
    """
    lines = ["NATS/1.0", known] if known else ["NATS/1.0"]
    for name, value in headers.items():
        # A line break in a value would begin a header that its sender did not mean.
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
