"""Refinement: the model answers, reads what is wrong with its answer, and answers again, until it is right.

For step-by-step environments whose observation stands for itself, such as the correction of a proof: each
answer is given in a new conversation, which has the latest observation only. The transcript has all
answers, each with the observation that it follows, and each is a separate token sequence, so that one can
train on every attempt. It ends as the step loop does.
"""

from __future__ import annotations

from collections.abc import Sequence

from gym_runtime.adapters import Rollout
from msgspec import Raw


class Agent:
    """One conversation for each answer."""

    async def run(self, rollout: Rollout) -> None:
        await rollout.reset()
        shown: Sequence[Raw] | None = None
        while True:
            turn = await rollout.respond(shown)
            if turn.incomplete is not None:
                return rollout.truncate(turn.incomplete)
            answered = len(rollout.output)
            step = await rollout.step(turn)
            if step.truncated:
                return rollout.truncate("environment")
            if step.terminated:
                return None
            if rollout.max_turns is not None and rollout.turns >= rollout.max_turns:
                return rollout.truncate("max_turns")
            shown = rollout.output[answered:]
