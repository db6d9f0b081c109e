"""Records of a group's rollouts."""

from __future__ import annotations

from gym_runtime.messages.outcomes import Completed, Outcome, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from msgspec import Raw


def record(of: RolloutSpec, outcome: Outcome | None = None) -> RolloutRecord:
    outcome = outcome or Completed()
    return RolloutRecord(
        run=of.run,
        task_index=of.task_index,
        rollout_index=of.rollout_index,
        environment=of.environment,
        outcome=outcome,
        row=Raw(b"{}"),
        reward=float(of.rollout_index) if isinstance(outcome, Completed) else None,
    )
