"""Images as an engine sees them: a data URL is decoded to its pixels. Knows the PNGs of the example rows."""

from __future__ import annotations

import base64
import struct
import zlib

Colour = tuple[int, int, int]
SIGNATURE = b"\x89PNG\r\n\x1a\n"
PALETTE = 3


def pixels(url: str) -> list[list[Colour]]:
    """The rows of a PNG with a palette of 8 bits, without filters."""
    head, _, data = url.partition(",")
    image = base64.b64decode(data, validate=True)
    assert (head, image[:8]) == ("data:image/png;base64", SIGNATURE)
    chunks: dict[bytes, bytes] = {}
    place = len(SIGNATURE)
    while place < len(image):
        size, kind = struct.unpack(">I4s", image[place : place + 8])
        body = image[place + 8 : place + 8 + size]
        assert zlib.crc32(kind + body) == int.from_bytes(image[place + 8 + size : place + 12 + size], "big")
        chunks[kind] = chunks.get(kind, b"") + body
        place += size + 12
    width, height, depth, colours, *_ = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, colours) == (8, PALETTE)
    flat = chunks[b"PLTE"]
    palette = [(flat[n], flat[n + 1], flat[n + 2]) for n in range(0, len(flat), 3)]
    lines = zlib.decompress(chunks[b"IDAT"])
    found: list[list[Colour]] = []
    for start in range(0, height * (width + 1), width + 1):
        assert lines[start] == 0, "the line has a filter"
        found.append([palette[index] for index in lines[start + 1 : start + 1 + width]])
    return found


def middle(url: str, colour: Colour) -> tuple[int, int]:
    """The middle of all pixels of a colour, as x and y."""
    there = [(x, y) for y, line in enumerate(pixels(url)) for x, one in enumerate(line) if one == colour]
    return round(sum(x for x, _ in there) / len(there)), round(sum(y for _, y in there) / len(there))
