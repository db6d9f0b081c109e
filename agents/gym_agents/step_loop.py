"""Step by step: the model's answer goes to the environment, whose observation the model answers next.

For games and simulated users (`gym_runtime.Episode`). Ends when the environment ends the episode, when an
answer is incomplete, or after ``max_turns`` answers.
"""

from __future__ import annotations

from gym_runtime.adapters import Rollout


class Agent:
    """The agent of step-by-step environments."""

    async def run(self, rollout: Rollout) -> None:
        await rollout.reset()
        while True:
            turn = await rollout.respond()
            if turn.incomplete is not None:
                return rollout.truncate(turn.incomplete)
            step = await rollout.step(turn)
            if step.truncated:
                return rollout.truncate("environment")
            if step.terminated:
                return None
            if rollout.max_turns is not None and rollout.turns >= rollout.max_turns:
                return rollout.truncate("max_turns")
