"""An engine's answer, read and decompressed up to a size limit.

An engine, or another program at its address, may send a body without an end, a small one that decompresses to
gigabytes, or one of millions of empty objects, each of which takes a hundred times its size when it is
decoded. The call's deadline limits the time (`gym_models.wire.http`), this module the size.
"""

from __future__ import annotations

import zlib

import aiohttp
from anyio.lowlevel import checkpoint

MAX_ANSWER_BYTES = 64 * 2**20
"""20,000 tokens with twenty alternatives each have 40 MiB."""
MAX_ERROR_BYTES = 2**20
MAX_OBJECTS, MAX_VALUES = 1_000_000, 8_000_000
_STEP_BYTES = 2**20
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class TooLarge(Exception):
    """The body is larger than it may be."""


class Unreadable(Exception):
    """The body cannot be unpacked; the message quotes nothing of it."""


async def read(answer: aiohttp.ClientResponse) -> bytes:
    """The body of an answer that was not unpacked yet; of an error, its first `MAX_ERROR_BYTES`.

    Other tasks run while a large body is unpacked.

    Raises:
        TooLarge: it is larger than `MAX_ANSWER_BYTES`, packed or unpacked, or has more than `MAX_OBJECTS`
            objects or `MAX_VALUES` values.
        Unreadable: it is packed in another way than gzip or deflate, or broken.
    """
    body = await _read(answer)
    # Braces and commas in texts count, too: only decoding the body would tell them apart.
    if len(body) > MAX_OBJECTS and (body.count(b"{") > MAX_OBJECTS or body.count(b",") > MAX_VALUES):
        raise TooLarge
    return body


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    failed = answer.status >= 300
    limit = MAX_ERROR_BYTES if failed else MAX_ANSWER_BYTES
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    length = answer.content_length
    if length is not None and length > limit and not failed:
        raise TooLarge
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise Unreadable(f"it is packed as {encoding[:40]!r}, and gzip is all that was asked for")
    packed = encoding not in ("", "identity")
    if length is not None and length <= limit and not packed:
        return await answer.read()  # aiohttp reads no more than the announced length
    unpacking = _Unpacking() if packed else None
    body = bytearray()
    read_bytes = 0
    async for piece in answer.content.iter_any():
        read_bytes += len(piece)
        if unpacking is None:
            body += piece
        else:
            await unpacking.unpack(piece, body, limit)
        if max(read_bytes, len(body)) > limit:
            if failed:
                return bytes(body[:limit])
            raise TooLarge
    if unpacking is not None and read_bytes and not unpacking.is_whole and not failed:
        raise Unreadable("it is packed, and breaks off")
    return bytes(body)


class _Unpacking:
    """gzip or zlib, piece by piece."""

    def __init__(self) -> None:
        self._state = zlib.decompressobj(_GZIP_OR_ZLIB)

    @property
    def is_whole(self) -> bool:
        return self._state.eof

    async def unpack(self, piece: bytes, body: bytearray, limit: int) -> None:
        """Append what a piece unpacks to, until it is more than ``limit`` in all."""
        try:
            while piece and len(body) <= limit:
                if self._state.eof:  # gzip allows several members in a row
                    self._state = zlib.decompressobj(_GZIP_OR_ZLIB)
                body += self._state.decompress(piece, _STEP_BYTES)
                piece = self._state.unused_data if self._state.eof else self._state.unconsumed_tail
                await checkpoint()
        except zlib.error as error:
            raise Unreadable("it is packed, and broken") from error
