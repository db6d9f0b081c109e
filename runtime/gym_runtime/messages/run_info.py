"""The stored description of a run, which every client and worker can read."""

from __future__ import annotations

import secrets
import time

import msgspec


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run.

    ``state`` is ``active``, ``finished`` or ``cancelled``.
    """

    run: str
    total: int
    environments: list[str] = []
    agents: list[str] = []
    created_s: float = 0.0
    state: str = "active"


encode_run = msgspec.json.Encoder().encode
decode_run = msgspec.json.Decoder(RunInfo).decode


def new_run_id() -> str:
    """A run's id: sortable by time, unique, one token of a subject."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
