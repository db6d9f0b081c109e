"""The state of a running system and its runs as ``--json`` prints them: with every field, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from gym_runtime.client import RunProgress
from gym_runtime.training import RunInfo
from gym_signal import Standing

from gym_view.limit import limit
from gym_view.live import Reading, is_paused, run_view, useful_shares, view


def full_status(
    reading: Reading, before: Reading | None = None, curricula: Sequence[Standing] = ()
) -> dict[str, Any]:
    """A system's state. With a reading ``before``, the processor's share of the limit is known."""
    found = reading.status
    return {
        "limit": limit(view(reading, before)),
        "workers": [_in_full(worker) for worker in found.workers],
        "queues": {agent: _in_full(depth) for agent, depth in found.queues.items()},
        "runs": [full_run(run, found.progress) for run in found.runs],
        "curricula": [msgspec.to_builtins(one) for one in curricula],
    }


def full_run(run: RunInfo, progress: dict[str, RunProgress]) -> dict[str, Any]:
    """A run, and how far it is."""
    known = progress.get(run.run, RunProgress())
    seen = run_view(run, known)
    return {
        **_in_full(run),
        **_in_full(known),
        "control": _in_full(known.control) if known.control else None,
        "alarms": [_in_full(alarm) for alarm in known.alarms],
        "paused": is_paused(run, known),
        "mean_reward": seen.mean_reward,
        "useful": seen.useful,
        "useful_by_environment": useful_shares(known.figures) if known.figures else {},
    }


def _in_full(struct: msgspec.Struct) -> dict[str, Any]:
    """Every field, also those with their default values, which the wire leaves out."""
    return msgspec.structs.asdict(struct)
