"""A taskset for verifiers 0.4 with its own Env: a game over turns, and a seat that is not trained."""

from __future__ import annotations

import random
from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["Higher", "HigherEnv"]


class HigherData(vf.TaskData):
    most: int


class HigherTask(vf.Task[HigherData]):
    pass


class HigherEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()
    commentator: vf.AgentConfig = vf.AgentConfig()
    commented: bool = False
    trained_both: bool = False


class HigherEnv(vf.Env[HigherEnvConfig]):
    async def setup(self, agents: vf.Agents) -> None:
        agents.commentator.trainable = self.config.trained_both

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        secret = random.randint(1, task.data.most)
        tries = 0
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                tries += 1
                guess = int(segment.last_reply)
                if guess == secret:
                    break
                segment = await interaction.turn("higher" if guess < secret else "lower")
        interaction.trace.record_metric("tries", tries)
        interaction.trace.record_reward("found", 1.0 / tries if guess == secret else 0.0)
        if self.config.commented:
            said = await agents.commentator.run(vf.Task(vf.TaskData(prompt=f"{tries} tries. Grade?")))
            interaction.trace.record_reward("style", float(said.last_reply))


class Higher(vf.Taskset[HigherTask, vf.TasksetConfig]):
    def load(self) -> Iterator[HigherTask]:
        yield HigherTask(HigherData(prompt="Guess", system_prompt="a game", most=8), self.config.task)
