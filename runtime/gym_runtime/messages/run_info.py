"""The stored description of a run, which every client and worker can read."""

from __future__ import annotations

import secrets
import time

import msgspec

from gym_runtime.messages.figures import Figures
from gym_runtime.messages.stored import Stored


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run: all that stays of it when it is over.

    Attributes:
        state: ``active``, ``finished`` or ``cancelled``.
        attached: its client is connected for as long as it is worked on.
        closed: what was stored for it is freed, and nothing more is to be stored.
        model: ``PROVIDER/NAME``, or the name of the pool that is asked; empty if not known.
        done, failed: when the run is over, how many rollouts have a result, and how many of these are
            failures; None if not known.
        figures: what its last client has counted, when the run is over.
    """

    run: str
    total: int
    environments: list[str] = []
    agents: list[str] = []
    created_s: float = 0.0
    state: str = "active"
    attached: bool = False
    closed: bool = False
    model: str = ""
    done: int | None = None
    failed: int | None = None
    figures: Figures | None = None


CLOSED = b"closed"
"""What a cancellation of a whole run says besides, when the run is closed."""

encode_run = msgspec.json.Encoder().encode
decode_run = msgspec.json.Decoder(RunInfo).decode


def _name(info: RunInfo) -> str:
    return info.run


RUNS = Stored(decode_run, _name)
"""Reads what is stored under ``runs.<run>``."""


def new_run_id() -> str:
    """A run's id: sortable by time, unique, one token of a subject."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
