"""An agent whose process some rows end after each turn that no earlier attempt has made."""

import os

from gym_runtime.adapters import Rollout

TURNS = 40


class Agent:
    async def run(self, rollout: Rollout) -> None:
        for _ in range(TURNS if b'"poison":true' in bytes(rollout.task.row) else 2):
            is_new = not rollout.is_resuming
            await rollout.respond()
            if is_new and b'"poison":true' in bytes(rollout.task.row):
                os._exit(7)
