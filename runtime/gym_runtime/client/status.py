"""The state of a system at one moment."""

from __future__ import annotations

import msgspec

from gym_runtime.bus.interface import QueueDepth
from gym_runtime.messages.run_info import RunInfo
from gym_runtime.rpc.registry import Heartbeat


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What is alive and what is waiting."""

    workers: list[Heartbeat]
    queues: dict[str, QueueDepth]
    runs: list[RunInfo]
