"""Agents: the policy of a rollout, one coroutine. Every effect goes through the `Rollout`."""

from __future__ import annotations

from typing import Protocol

from gym_runtime.rollout.rollout import Rollout


class Agent(Protocol):
    """How a rollout is run. A module of ``gym_agents`` has one class of this name.

    One instance runs all rollouts of a worker, so keep a rollout's state in local variables. When `run`
    returns, the rollout has ended and is judged.
    """

    async def run(self, rollout: Rollout) -> None:
        """Run one rollout to its end. Do not catch the errors of the rollout's methods."""
        ...
