"""What everybody can look up: runs, and the state of a system."""

from __future__ import annotations

import secrets
import time

import msgspec

from gym_runtime.bus.interface import QueueDepth
from gym_runtime.rpc.registry import Heartbeat


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


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What is alive and what is waiting."""

    workers: list[Heartbeat]
    queues: dict[str, QueueDepth]
    runs: list[RunInfo]


encode_run = msgspec.json.Encoder().encode
decode_run = msgspec.json.Decoder(RunInfo).decode


def new_run_id() -> str:
    """A run's id: sortable by time, unique, one token of a subject."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
