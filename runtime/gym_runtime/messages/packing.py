"""Token ids and log-probabilities on the wire: four bytes per number, little-endian on every machine.

An array of shape ``(tokens,)`` takes ``4 * tokens`` bytes.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence

import msgspec

ID_BYTES = 4
_TEXT_BYTES = 16_000
"""So much JSON is read at once: its numbers stay in the processor's cache, which saves a third."""
_NUMBERS = _TEXT_BYTES // 4
_decode = msgspec.json.Decoder(list[int]).decode
_encode = msgspec.json.Encoder().encode


def pack_ids(ids: Sequence[int]) -> bytes:
    """As int32.

    >>> unpack_ids(pack_ids([1, 128_255]))
    [1, 128255]
    """
    return struct.pack(f"<{len(ids)}i", *ids)


def unpack_ids(data: bytes) -> list[int]:
    """From int32."""
    return _int32(data).tolist()


def _int32(data: bytes) -> array[int]:
    ids = array("i", data)  # a third faster than `struct.unpack`; its numbers have four bytes, too
    if sys.byteorder == "big":
        ids.byteswap()
    return ids


def pack_json_ids(text: bytes) -> bytes:
    """As int32, from a JSON array.

    Raises:
        msgspec.DecodeError: it is no array of whole numbers.
        struct.error: a number has more than 32 bits.
    """
    return b"".join([pack_ids(_decode(piece)) for piece in _arrays(text)])


def _arrays(text: bytes) -> Iterator[bytes]:
    """Cut a JSON array of numbers into several; if it is malformed, one of them is."""
    start, opened = 0, b""
    while 0 <= (end := text.find(b",", start + _TEXT_BYTES)) < len(text) - _TEXT_BYTES:
        yield b"%b%b]" % (opened, text[start:end])
        start, opened = end + 1, b"["
    yield opened + text[start:]


def json_ids(data: bytes) -> bytes:
    """The numbers of a JSON array, without its brackets, from int32.

    >>> json_ids(pack_ids([1, 128_255]))
    b'1,128255'
    """
    ids = _int32(data)
    pieces = (ids[start : start + _NUMBERS] for start in range(0, len(ids), _NUMBERS))
    return b",".join([_encode(piece.tolist())[1:-1] for piece in pieces])


def pack_logprobs(logprobs: Sequence[float]) -> bytes:
    """As float32."""
    return struct.pack(f"<{len(logprobs)}f", *logprobs)


def unpack_logprobs(data: bytes) -> list[float]:
    """From float32.

    >>> unpack_logprobs(pack_logprobs([-0.25]))
    [-0.25]
    """
    return list(struct.unpack(f"<{len(data) // 4}f", data))
