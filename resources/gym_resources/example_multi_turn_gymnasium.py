"""A conversation with a scripted user: the smallest step-by-step environment.

The row's input opens the conversation; after each of the model's answers the user sends the next of
``follow_ups``. The answer to the last of them ends the episode: it is worth 1 if ``expected_answer`` stands
somewhere in its text, in any case. A row without an ``expected_answer``, or with an empty one, is worth 0.

Rows, shape and rewards are those of NeMo Gym's environment of this name: reset, steps, the sum of their
rewards, at most ten answers. The example rows are our own.
"""

from __future__ import annotations

import msgspec
from gym_runtime import Environment, Episode, Reply, Step, Task


class ConversationTask(Task):
    follow_ups: list[str] = msgspec.field(default_factory=list[str])
    expected_answer: str = ""


class Conversation(Episode[ConversationTask]):
    async def open(self) -> None:
        self.follow_ups = iter(self.task.follow_ups)

    async def step(self, reply: Reply) -> Step:
        follow_up = next(self.follow_ups, None)
        if follow_up is not None:
            return Step(observation=follow_up)
        expected = self.task.expected_answer.lower()
        return Step(reward=float(bool(expected) and expected in reply.joined_text.lower()), terminated=True)


environment = Environment(
    resource=Conversation,
    description="Keep track of what a scripted user says over several turns.",
    domain="agent",
    data_license="Apache-2.0 (own rows)",
    max_turns=10,
)
