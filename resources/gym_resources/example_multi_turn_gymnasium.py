"""A conversation with a scripted user: the smallest step-by-step environment.

The row's input opens the conversation; to each of the model's answers the user says the next of
``verifier_metadata.follow_ups``. The answer to the last of them ends the episode: it is worth 1 if
``verifier_metadata.expected_answer`` stands somewhere in it, in any case; without one, if it says anything.

Shape and rewards as its namesake in NeMo Gym: reset, steps, the sum of their rewards, at most ten answers.
The rows are our own.
"""

from __future__ import annotations

import msgspec
from gym_runtime import Environment, Episode, Reply, Step, Task


class Script(msgspec.Struct):
    follow_ups: list[str]
    expected_answer: str | None = None


class ConversationTask(Task):
    verifier_metadata: Script


class Conversation(Episode[ConversationTask]):
    async def open(self) -> None:
        self.follow_ups = iter(self.task.verifier_metadata.follow_ups)

    async def step(self, reply: Reply) -> Step:
        follow_up = next(self.follow_ups, None)
        if follow_up is not None:
            return Step(observation=follow_up)
        return Step(reward=float(self.is_right(reply.text)), terminated=True)

    def is_right(self, answer: str) -> bool:
        expected = self.task.verifier_metadata.expected_answer
        if expected is None:
            return bool(answer.strip())
        return expected.casefold() in answer.casefold()


environment = Environment(
    resource=Conversation,
    description="Keep track of what a scripted user says over several turns.",
    domain="agent",
    max_turns=10,
)
