"""Three questions in a row, whatever is answered: rollouts of three turns for `one_gpu.py`."""

from __future__ import annotations

from gym_runtime import Environment, Episode, Reply, Step, Task


class Topic(Task):
    topic: str


class ThreeQuestions(Episode[Topic]):
    asked: int = 0

    async def reset(self) -> str:
        return f"Write one sentence about {self.task.topic}."

    async def step(self, reply: Reply) -> Step:
        self.asked += 1
        named = float(self.task.topic in reply.text.lower())
        return Step(observation="And another one, please.", reward=named / 3, terminated=self.asked == 3)


environment = Environment(
    resource=ThreeQuestions,
    agent="step_loop",
    description="Three sentences about a topic, one after the other.",
    domain="instruction_following",
)
