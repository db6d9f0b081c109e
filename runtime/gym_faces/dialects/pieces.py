"""JSON assembled from pieces of JSON, so that what only passes through is never decoded."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable
from contextlib import suppress

import msgspec
from gym_runtime.errors import UNREADABLE
from msgspec import Raw

_RUN = os.urandom(8).hex()
_numbers = itertools.count(1)

encode = msgspec.json.Encoder().encode
decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
decode_text = msgspec.json.Decoder(str).decode

Bytes = bytes | Raw
_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")


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


def finite(document: bytes) -> bytes:
    """A document with null in place of each number that no double can hold, in case it has any.

    Strict readers of result files refuse such a number, and others write it again as ``Infinity``.

    >>> finite(b'{"a":1e999,"b":[1e99]}')
    b'{"a":null,"b":[1e99]}'
    """
    # A look at the bytes first: an exponent of three digits is rare.
    if b"0e000" not in document.translate(_DIGITS, b"+"):
        return document
    try:
        msgspec.json.decode(document)
    except UNREADABLE:
        # If that is for another reason, who reads the document finds it.
        with suppress(ValueError, RecursionError):
            return encode(json.loads(document, parse_int=_whole))
    return document


def _whole(digits: str) -> int | float:
    # What the encoder refuses.
    return int(digits) if len(digits) < 19 else float(digits)
