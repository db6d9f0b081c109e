"""Images for tests."""

from __future__ import annotations

import struct
import zlib


def png(width: int, height: int, filler: int = 0) -> bytes:
    """A PNG of one colour, and longer by so many bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = zlib.compress(b"".join(b"\0" + b"\x7f" * width for _ in range(height)))
    more = chunk(b"teXt", b"x" * filler) if filler else b""
    return b"\x89PNG\r\n\x1a\n" + head + more + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
