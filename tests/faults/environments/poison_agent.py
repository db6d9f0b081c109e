"""An agent whose process some rows end."""

import os

from gym_runtime.adapters import Rollout


class Agent:
    async def run(self, rollout: Rollout) -> None:
        await rollout.respond()
        if b'"poison":true' in bytes(rollout.task.row):
            os._exit(7)
