"""An agent that cancels itself at some rows, as `leaking` does."""

import msgspec
from gym_runtime.adapters import Rollout
from leaking import leak


class Agent:
    async def run(self, rollout: Rollout) -> None:
        await rollout.respond()
        row = msgspec.json.decode(rollout.task.row)
        if row["at"] == "agent":
            await leak(row["way"])
