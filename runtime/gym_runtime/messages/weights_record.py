"""The stored message that says which weights the engines of a model are to have."""

from __future__ import annotations

import msgspec

from gym_runtime.messages.stored import Stored


class CurrentWeights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The weights that all engines of a model are to have; an engine that starts later loads them.

    Attributes:
        path: where the engines find them; empty if they are at no path: then an engine has its own.
        version: their name.
    """

    path: str = ""
    version: str = ""


encode_current_weights = msgspec.json.Encoder().encode
decode_current_weights = msgspec.json.Decoder(CurrentWeights).decode
WEIGHTS = Stored(decode_current_weights)
"""Reads what is stored under ``runs.weights.<pool>``."""
