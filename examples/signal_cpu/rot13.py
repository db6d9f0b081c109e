"""Encode a word by rot13. The reward is 1 if every letter is right, and else 0."""

from __future__ import annotations

import codecs

from gym_runtime import Environment, Reply, Task, Verdict


class WordTask(Task):
    word: str


async def verify(task: WordTask, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == codecs.encode(task.word, "rot13")))


environment = Environment(
    resource=verify, agent="single_turn", description="Encode a word by rot13.", domain="other"
)
