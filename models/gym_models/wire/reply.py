"""An HTTP answer, why there is none, and how large one may be: what both HTTP clients share.

An engine, or another program at its address, may send a body without an end, a small one that decompresses to
gigabytes, or one of millions of empty objects, each of which takes a hundred times its size when it is
decoded. The call's deadline limits the time (`gym_models.wire.http`), this module the size, packed and
unpacked, of one answer, and of all that a process reads at the same time.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple

import anyio
from anyio.lowlevel import checkpoint

REFUSED = "nothing listens at {url}"
UNRESOLVED = "the host of {url} cannot be resolved"
NO_CONNECTION = "no connection to {url}: {reason}"
UNTRUSTED = "no trusted TLS connection to {url}: {reason}"
PROXY = "the proxy on the way to {url} answered {reason}"
NOT_HTTP = "{url} does not answer in HTTP as it should"
BROKE = "the connection to {url} broke in mid-answer: {reason}"


class NoAnswer(Exception):
    """``said`` is a sentence of this module, ``reason`` another program's words, which may hold a key."""

    def __init__(self, said: str, reason: str = "") -> None:
        super().__init__(said)
        self.said = said
        self.reason = reason


class Reply(NamedTuple):
    """An HTTP answer, whole and still packed. ``headers``: names in lower case, the first of each."""

    status: int
    headers: dict[str, str]
    body: bytes


# -- how large an answer may be ---------------------------------------------------------------------------

MAX_ANSWER_BYTES = 64 * 2**20
"""20,000 tokens with twenty alternatives each have 40 MiB."""
MAX_TOGETHER_BYTES = 512 * 2**20
"""Of all answers that one process reads. Answers of a batch that ends at its limit of tokens come at once."""
MAX_ERROR_BYTES = 2**20
MAX_OBJECTS, MAX_VALUES = 1_000_000, 8_000_000
_FOUND_SINGLY = 1000
_SLICE_BYTES, _STEP_BYTES = 2**16, 2**20
_SMALL_BYTES = 2**18
# 32: zlib tells the two formats apart by their beginnings.
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class TooLarge(Exception):
    """The body is larger than it may be."""


class Unreadable(Exception):
    """The body cannot be unpacked; the message quotes nothing of it."""


def limit_bytes(status: int) -> int:
    """How much of an answer of this status is read."""
    return MAX_ERROR_BYTES if status >= 300 else MAX_ANSWER_BYTES


def counted(body: bytes) -> bytes:
    """The body, if it is not too large to be decoded.

    Raises:
        TooLarge: it has more than `MAX_OBJECTS` objects or `MAX_VALUES` values.
    """
    # Braces and commas in texts count, too: only decoding the body would tell them apart. A small body cannot
    # hold so many, at three bytes for an object and two for a value.
    if len(body) > 3 * MAX_OBJECTS and _has_more(body, b"{", MAX_OBJECTS):
        raise TooLarge
    if len(body) > 2 * MAX_VALUES and _has_more(body, b",", MAX_VALUES):
        raise TooLarge
    return body


def _has_more(body: bytes, sign: bytes, most: int) -> bool:
    """Whether a sign stands there more often. To find a rare one is much faster than to count."""
    at = -1
    for _ in range(_FOUND_SINGLY):
        at = body.find(sign, at + 1)
        if at < 0:
            return False
    return _FOUND_SINGLY + body.count(sign, at + 1) > most


class Reading:
    """What the answers that are being read take together; beyond ``most_bytes``, large ones wait for others.

    The one that became large first never waits, so all of them come to an end. Small ones do not wait either.
    """

    def __init__(self, most_bytes: int = MAX_TOGETHER_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._large: dict[object, int] = {}
        self._waiting: dict[object, Callable[[], None]] = {}

    def waits(self, answer: object, size_bytes: int, go_on: Callable[[], None]) -> bool:
        """Whether no more of an answer may be read, of which there are ``size_bytes`` now, until ``go_on``
        is called. `ended` has to follow.
        """
        if size_bytes <= _SMALL_BYTES:
            return False
        self._bytes += size_bytes - self._large.get(answer, 0)
        self._large[answer] = size_bytes
        if self._bytes <= self._most_bytes or answer is next(iter(self._large)):
            return False
        self._waiting[answer] = go_on
        return True

    async def has_room(self, answer: object, size_bytes: int) -> None:
        """Wait until more of an answer may be read. `ended` has to follow."""
        event = anyio.Event()
        if self.waits(answer, size_bytes, event.set):
            await event.wait()

    def ended(self, answer: object) -> None:
        """An answer is complete or given up: others may go on."""
        self._bytes -= self._large.pop(answer, 0)
        free = self._bytes <= self._most_bytes
        for one in [answer, *(self._large if free else list(self._large)[:1])]:
            if one in self._waiting:
                self._waiting.pop(one)()


READING = Reading()


async def unpacked(status: int, encoding: str, packed: bytes) -> bytes:
    """A packed body, unpacked; of an error, its beginning. Other tasks run meanwhile.

    Args:
        encoding: the header ``content-encoding``.
        packed: as it came, at most `limit_bytes` of it.

    Raises:
        TooLarge: it is larger than it may be, or has more objects than `counted` allows.
        Unreadable: it is packed in another way than gzip or deflate, or broken.
    """
    encoding, failed = encoding.strip().lower(), status >= 300
    if encoding == "identity":
        return counted(packed)
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Unreadable(f"it is packed as {encoding[:40]!r}, and gzip is all that was asked for")
    limit = limit_bytes(status)
    state, body, answer = zlib.decompressobj(_GZIP_OR_ZLIB), bytearray(), object()
    try:
        # In slices, since zlib copies what it has not read yet at every step.
        for start in range(0, len(packed), _SLICE_BYTES):
            rest = packed[start : start + _SLICE_BYTES]
            while rest and len(body) <= limit:
                if state.eof:  # gzip allows several members in a row
                    state = zlib.decompressobj(_GZIP_OR_ZLIB)
                body += state.decompress(rest, _STEP_BYTES)
                rest = state.unused_data if state.eof else state.unconsumed_tail
                await checkpoint()
                await READING.has_room(answer, len(packed) + len(body))
    except zlib.error as error:
        raise Unreadable("it is packed, and broken") from error
    finally:
        READING.ended(answer)
    if failed:
        return bytes(body[:limit])
    if len(body) > limit:
        raise TooLarge
    if packed and not state.eof:
        raise Unreadable("it is packed, and breaks off")
    return counted(bytes(body))
