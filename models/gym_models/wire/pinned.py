"""Sampling that a model worker's settings pin, whatever rows and runs say."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from gym_faces.dialects import pieces
from gym_runtime import TaskError
from gym_runtime.errors import UNREADABLE
from msgspec import Raw

_OWN = ("temperature", "top_p", "max_output_tokens", "top_logprobs", "reasoning", "text")
"""The parameters that the Responses API has itself; all others travel in ``metadata.extra_body``."""
_decode_metadata = msgspec.json.Decoder(dict[str, str]).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


@lru_cache(maxsize=256)
def pinned(params: bytes, sampling: bytes) -> Raw:
    """The parameters of a call with those of ``sampling``, a JSON object, in place of their own.

    Raises:
        TaskError: the call's ``metadata`` is malformed.
    """
    fields: dict[str, Any] = dict(pieces.decode_fields(params))
    said = fields.get("metadata", Raw())
    given = _decode_object(sampling)
    try:
        metadata: dict[str, str] = {} if pieces.is_null(said) else _decode_metadata(said)
        extra = _decode_object(metadata.get("extra_body", "{}"))
    except UNREADABLE as error:
        raise TaskError(f"responses_create_params.metadata: {error}", stage="model") from error
    fields |= {name: value for name, value in given.items() if name in _OWN}
    extra = {name: value for name, value in extra.items() if name not in given}
    extra |= {name: value for name, value in given.items() if name not in _OWN}
    if extra or "extra_body" in metadata:
        metadata["extra_body"] = pieces.encode(extra).decode()
    return Raw(pieces.encode({**fields, "metadata": metadata} if metadata else fields))
