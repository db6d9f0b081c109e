"""JSON put together from pieces that are JSON already, so that what only passes through is never decoded."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from gym_runtime.gateway.dialect import HOSTED_TOOLS, OPTIONAL
from msgspec import Raw

_RUN = os.urandom(8).hex()
_numbers = itertools.count(1)

encode = msgspec.json.Encoder().encode
decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
decode_text = msgspec.json.Decoder(str).decode
_decode_metadata = msgspec.json.Decoder(dict[str, str]).decode

Bytes = bytes | Raw


def array(pieces: Iterable[Bytes]) -> bytes:
    """
    >>> array([b"1", b'{"a":2}'])
    b'[1,{"a":2}]'
    """
    return b"[" + b",".join(pieces) + b"]"


def identity() -> str:
    """A suffix for an id that no other process gives out."""
    return f"{_RUN}{next(_numbers):08x}"


def is_string(piece: Bytes) -> bool:
    """Whether a piece is a JSON string."""
    return bytes(memoryview(piece)[:1]) == b'"'


def is_null(piece: Bytes) -> bool:
    """Whether a piece is ``null`` or was absent. Copies nothing: a piece may be large."""
    return bytes(memoryview(piece)[:5]) in (b"", b"null")


def tools_are_optional(fields: Mapping[str, Raw]) -> bool:
    """Whether hosted tools that the engine lacks may be left out: a harness offers them, no row asks for any.

    Ask before `take_side_channel`.
    """
    metadata = fields.get("metadata", Raw())
    return not is_null(metadata) and _decode_metadata(metadata).get(HOSTED_TOOLS) == OPTIONAL


def take_side_channel(fields: dict[str, Raw]) -> Mapping[str, Any]:
    """Take NeMo Gym's string-to-string side channel out of ``metadata``.

    ``metadata.extra_body`` and ``metadata.chat_template_kwargs`` hold JSON as text; what they say
    belongs in the body of the request; what `tools_are_optional` reads is for us alone. The rest stays.

    Raises:
        msgspec.DecodeError: one of them is not a JSON object.
    """
    if "metadata" not in fields:
        return {}
    metadata = _decode_metadata(fields.pop("metadata"))
    metadata.pop(HOSTED_TOOLS, None)
    extra: dict[str, Any] = {}
    if "extra_body" in metadata:
        extra |= msgspec.json.decode(metadata.pop("extra_body"), type=dict[str, Any])
    if "chat_template_kwargs" in metadata:
        kwargs = msgspec.json.decode(metadata.pop("chat_template_kwargs"), type=dict[str, Any])
        extra["chat_template_kwargs"] = {**extra.get("chat_template_kwargs", {}), **kwargs}
    if metadata:
        fields["metadata"] = Raw(encode(metadata))
    return extra
