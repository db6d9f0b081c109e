"""An agent that uses tools, and asks "Are you sure?" before an answer counts.

Change what happens between the model's answers; `gym-runtime test` says what is missing.
Do the same for the same answers, so that another worker can continue after a crash.
"""

from __future__ import annotations

import msgspec
from gym_runtime.adapters import Rollout
from gym_runtime.messages import user_message


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run may set: ``--agent-set doubts=2``."""

    doubts: int = 1


class Agent:
    """Executes tool calls, and asks again before the last answer counts."""

    async def run(self, rollout: Rollout) -> None:
        doubts = rollout.options(Options).doubts
        while True:
            answer = await rollout.respond()
            if answer.incomplete is not None:
                return rollout.truncate(answer.incomplete)
            if answer.function_calls:
                await rollout.call_tools(answer.function_calls)
            elif doubts == 0:
                return None
            else:
                doubts -= 1
                rollout.output.append(user_message("Are you sure? Answer again."))
            if rollout.max_turns is not None and rollout.turns >= rollout.max_turns:
                return rollout.truncate("max_turns")
