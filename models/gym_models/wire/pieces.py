"""JSON assembled from pieces of JSON, so that what only passes through is never decoded."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from gym_runtime import TaskError
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import HOSTED_TOOLS, OPTIONAL, refused
from msgspec import Raw

_RUN = os.urandom(8).hex()
_numbers = itertools.count(1)

encode = msgspec.json.Encoder().encode
decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
decode_text = msgspec.json.Decoder(str).decode
_decode_metadata = msgspec.json.Decoder(dict[str, str]).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode

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


def tools_are_optional(fields: Mapping[str, Raw]) -> bool:
    """Whether hosted tools that the engine lacks may be left out: a harness offers them, a row never does.

    Call this before `take_side_channel`, which removes the mark.
    """
    metadata = fields.get("metadata", Raw())
    return not is_null(metadata) and _decode_metadata(metadata).get(HOSTED_TOOLS) == OPTIONAL


def take_side_channel(fields: dict[str, Raw]) -> Mapping[str, Any]:
    """Take NeMo Gym's string-to-string side channel out of ``metadata``.

    ``metadata.extra_body`` and ``metadata.chat_template_kwargs`` hold JSON as text whose fields belong in the
    body of the request; the mark that `tools_are_optional` reads is removed. The rest stays.

    Raises:
        TaskError: one of them is not a JSON object, or holds a field that a row may not set.
    """
    if "metadata" not in fields:
        return {}
    try:
        metadata = _decode_metadata(fields.pop("metadata"))
        metadata.pop(HOSTED_TOOLS, None)
        extra = _decode_object(metadata.pop("extra_body", "{}"))
        kwargs = _decode_object(metadata.pop("chat_template_kwargs", "{}"))
        if kwargs:
            said: Any = extra.get("chat_template_kwargs")
            extra["chat_template_kwargs"] = {**(msgspec.convert(said, dict[str, Any] | None) or {}), **kwargs}
    except UNREADABLE as error:
        raise TaskError(f"responses_create_params.metadata: {error}", stage="model") from error
    if problem := refused(extra):
        raise TaskError(f"responses_create_params.metadata.extra_body: {problem}", stage="model")
    if metadata:
        fields["metadata"] = Raw(encode(metadata))
    return extra
