"""JSON assembled from pieces of JSON, so that what only passes through is never decoded."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable

import msgspec
from msgspec import Raw

_RUN = os.urandom(8).hex()
_numbers = itertools.count(1)

encode = msgspec.json.Encoder().encode
decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
decode_text = msgspec.json.Decoder(str).decode

Bytes = bytes | Raw


def array(pieces: Iterable[Bytes]) -> bytes:
    """
    >>> array([b"1", b'{"a":2}'])
    b'[1,{"a":2}]'
    """
    return b"[" + b",".join(pieces) + b"]"


def identity() -> str:
    """A suffix for an id, unique across processes."""
    return f"{_RUN}{next(_numbers):08x}"


def is_string(piece: Bytes) -> bool:
    """Whether a piece is a JSON string."""
    return bytes(memoryview(piece)[:1]) == b'"'


def is_null(piece: Bytes) -> bool:
    """Whether a piece is ``null`` or was absent. Copies nothing: a piece may be large."""
    return bytes(memoryview(piece)[:5]) in (b"", b"null")


def present(document: bytes) -> dict[str, Raw]:
    """The fields of an object that are not ``null``."""
    return {name: value for name, value in decode_fields(document).items() if not is_null(value)}
