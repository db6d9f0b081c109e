"""The tool loop: the model answers, its tool calls are executed, until it answers with a message.

It stops
1. when an answer is incomplete; tool calls of that answer are not executed,
2. when an answer has a message of the assistant and no tool call,
3. when ``max_turns`` answers were given; the tool calls of the last are still executed.

After an answer with neither message nor tool call (reasoning only) the model is called again. These are the
rules of NeMo Gym's simple agent. Two things differ: such reasoning-only answers are bounded (there a
model can loop for ever), and tool calls of one answer run concurrently where the environment allows it.
"""

from __future__ import annotations

from gym_runtime import Rollout

MAX_REASONING_ONLY = 4


class Agent:
    """The default agent of environments with tools; without tools it is a single answer."""

    async def run(self, rollout: Rollout) -> None:
        reasoning_only = 0
        while True:
            turn = await rollout.respond()
            if turn.incomplete is not None:
                return rollout.truncate(turn.incomplete)
            if turn.function_calls:
                reasoning_only = 0
                await rollout.call_tools(turn.function_calls)
            elif turn.messages:
                return None
            else:
                reasoning_only += 1
                if reasoning_only >= MAX_REASONING_ONLY:
                    return rollout.truncate("reasoning_only")
            if rollout.max_turns is not None and rollout.turns >= rollout.max_turns:
                return rollout.truncate("max_turns")
