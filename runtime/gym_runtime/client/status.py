"""The state of a system at one moment."""

from __future__ import annotations

import msgspec

from gym_runtime.bus.interface import QueueDepth
from gym_runtime.messages.figures import Figures
from gym_runtime.messages.run_info import RunInfo
from gym_runtime.rpc.members import Heartbeat


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is; unknown figures are None.

    Attributes:
        done: rollouts that have a result, whatever their outcome.
        failed: how many of these are failures.
        rate_per_s: results per second since the run, or this part of it, began.
        left_s: seconds until the rest has results at this rate.
        figures: what its client has counted: rewards, outcomes, tokens, durations.
    """

    done: int | None = None
    failed: int | None = None
    rate_per_s: float | None = None
    left_s: float | None = None
    figures: Figures | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What is alive and what is waiting. ``progress`` is by run."""

    workers: list[Heartbeat]
    queues: dict[str, QueueDepth]
    runs: list[RunInfo]
    progress: dict[str, RunProgress] = {}
