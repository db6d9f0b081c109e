"""Images in a conversation: bytes become an ``input_image`` part, as data within the conversation.

Nothing is decoded: the kind and the size in pixels are read from the first bytes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from struct import error as StructError  # noqa: N812 - a name for an exception
from struct import unpack_from
from typing import Any

MAX_BYTES = 8 * 2**20
MAX_PIXELS = 40_000_000
Content = str | list[dict[str, Any]]
"""What a model reads of a tool: a text, or ``input_text`` and ``input_image`` parts."""


class Image:
    """An image, such as a screenshot, that a tool returns.

    Args:
        data: a PNG, JPEG, GIF or WebP file, of 8 MiB and 40 megapixels at most.

    Attributes:
        media_type: ``image/png`` and the like.
        width: in pixels.
        height: in pixels.

    Raises:
        ValueError: the data are no PNG, JPEG, GIF or WebP file, or the image is too large.
    """

    __slots__ = ("data", "height", "media_type", "width")

    def __init__(self, data: bytes) -> None:
        if len(data) > MAX_BYTES:
            raise ValueError(f"the image has {len(data)} bytes; at most {MAX_BYTES} are accepted")
        try:
            self.media_type, width, height = _head(data)
        except (StructError, StopIteration, IndexError):
            raise ValueError("the image's size cannot be read: it is cut short") from None
        if not 0 < width * height <= MAX_PIXELS:
            raise ValueError(f"the image has {width}×{height} pixels; at most {MAX_PIXELS} are accepted")
        self.data, self.width, self.height = data, width, height

    def part(self) -> dict[str, Any]:
        """The part of a message."""
        url = f"data:{self.media_type};base64,{b64encode(self.data).decode()}"
        return {"type": "input_image", "image_url": url, "detail": "auto"}


def _head(data: bytes) -> tuple[str, int, int]:
    """The media type, the width and the height."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png", *unpack_from(">II", data, 16)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif", *unpack_from("<HH", data, 6)
    if data.startswith(b"\xff\xd8\xff"):
        height, width = next(_jpeg_frames(data))
        return "image/jpeg", width, height
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp", *_webp_size(data)
    raise ValueError("the image is no PNG, JPEG, GIF or WebP")


def _jpeg_frames(data: bytes) -> Iterator[tuple[int, int]]:
    at = 2
    while at < len(data):
        marker, length = unpack_from(">HH", data, at)
        if 0xFFC0 <= marker <= 0xFFCF and marker not in (0xFFC4, 0xFFC8, 0xFFCC):
            yield unpack_from(">HH", data, at + 5)
        at += 2 + length


def _webp_size(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L":
            (bits,) = unpack_from("<I", data, 21)
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case _:
            width, height = unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF


def text_part(text: str) -> dict[str, Any]:
    """A part that is a text."""
    return {"type": "input_text", "text": text}
