"""Each message of the row's input is asked alone, all at the same time.

For base models whose log-probabilities of several continuations are compared: each message is a whole text.
The transcript has each message and its answer, in the order of the input, and each is a separate token
sequence.
"""

from __future__ import annotations

from gym_runtime.adapters import Rollout


class Agent:
    """One question for each message."""

    async def run(self, rollout: Rollout) -> None:
        turns = await rollout.respond_apart(*[[message] for message in rollout.input])
        for turn in turns:
            if turn.incomplete is not None:
                return rollout.truncate(turn.incomplete)
        return None
