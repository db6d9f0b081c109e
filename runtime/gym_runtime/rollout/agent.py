"""Agents: the policy of a rollout, one coroutine. Every effect goes through the `Rollout`."""

from __future__ import annotations

from typing import Protocol

from gym_runtime.rollout.rollout import Rollout


class Agent(Protocol):
    """How a rollout is run. A module of ``gym_agents`` has one class of this name.

    One instance serves all rollouts of a worker: what belongs to a rollout lives in local variables.
    Returning ends the rollout and has it judged; so does `Rollout.truncate`.
    """

    async def run(self, rollout: Rollout) -> None:
        """Run one rollout to its end. Errors of effects are left to pass through."""
        ...
