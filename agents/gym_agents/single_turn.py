"""One answer, judged as it is. Tool calls in it are not executed: they are the answer."""

from __future__ import annotations

from gym_runtime.adapters import Rollout


class Agent:
    """For environments without tools, and for those that judge a tool call rather than its effect."""

    async def run(self, rollout: Rollout) -> None:
        turn = await rollout.respond()
        if turn.incomplete is not None:
            rollout.truncate(turn.incomplete)
