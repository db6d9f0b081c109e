"""Answers of services and of boxes, which are not trusted: read up to a size, and told without keys."""

from __future__ import annotations

from typing import Any

from gym_runtime import ResourceError
from gym_runtime.escapes import shown

from gym_boxes.provider import BoxUnknown

ANSWER_BYTES = 16 << 20
"""An answer of a service's API; its longest is a page of boxes."""


async def body_of(answer: Any, most_bytes: int = ANSWER_BYTES, *, file: str = "") -> bytes:
    """The body of an answer of aiohttp's client.

    Args:
        file: the file that it is.

    Raises:
        BoxUnknown, ResourceError: it has more than ``most_bytes``; the latter for a file.
    """
    pieces: list[bytes] = []
    size_bytes = 0
    async for piece in answer.content.iter_any():
        size_bytes += len(piece)
        if size_bytes > most_bytes:
            if file:
                raise too_large(file, most_bytes)
            raise BoxUnknown(f"the service of boxes answers with more than {most_bytes:,} bytes", stage="box")
        pieces.append(piece)
    return b"".join(pieces)


def too_large(file: str, most_bytes: int) -> ResourceError:
    """The error for a file of a box that is longer than was asked for."""
    return ResourceError(f"the file {file!r} has more than {most_bytes:,} bytes", stage="box")


def told(text: str, *keys: str, chars: int = 300) -> str:
    """The beginning of a foreign text, without keys: a service may repeat what it was sent.

    >>> told("refused: Bearer abc", "abc", "")
    'refused: Bearer [key]'
    """
    for key in keys:
        text = text.replace(key, "[key]") if key else text
    return shown(text)[:chars]
