"""Decompression in small steps, so that a caller can stop a body that grows without end."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from gym_data.web.unavailable import PageUnavailable

STEP_BYTES = 256 << 10
MEMBERS = 1000
"""The parts that one gzip body may have; each costs a new decompressor."""

# zlib's numbers of the formats; servers send either of the last two as "deflate".
_GZIP, _ZLIB, _BARE = 31, 15, -15


def decompressor(encoding: str) -> Callable[[bytes], Iterator[bytes]] | None:
    """What takes a body's chunks and yields its content, at most `STEP_BYTES` at a time; None if unknown.

    What cannot be decompressed raises `PageUnavailable` while it is consumed.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return _as_it_is
        case "gzip" | "x-gzip":
            return _Decompressor(_GZIP)
        case "deflate":
            return _Decompressor(_ZLIB, _BARE)
        case _:
            return None


def _as_it_is(chunk: bytes) -> Iterator[bytes]:
    yield chunk


class _Decompressor:
    """
    Args:
        formats: what the body may be in, by the numbers of zlib; the first that fits its beginning.
    """

    def __init__(self, *formats: int) -> None:
        self._format, self._others = formats[0], formats[1:]
        self._stream = zlib.decompressobj(self._format)
        self._begun = False
        self._members = 0

    def __call__(self, chunk: bytes) -> Iterator[bytes]:
        part = b""
        # A full step may have left output behind, although all input is consumed.
        while chunk or len(part) == STEP_BYTES:
            if self._stream.eof:
                self._next_member()
            try:
                part = self._stream.decompress(chunk, STEP_BYTES)
            except zlib.error as error:
                if self._begun or not self._others:
                    raise PageUnavailable("its compression is broken") from error
                self._format, self._others = self._others[0], self._others[1:]
                self._stream = zlib.decompressobj(self._format)
                continue
            self._begun = True
            chunk = self._stream.unconsumed_tail or self._stream.unused_data
            yield part

    def _next_member(self) -> None:
        self._members += 1
        if self._members > MEMBERS:
            raise PageUnavailable(f"it is compressed in more than {MEMBERS} parts")
        self._stream = zlib.decompressobj(self._format)
