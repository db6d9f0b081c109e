"""Write about a topic in an exact number of words. The nearer, the better; an answer cut short has 0.

Without that last rule a model learns to fill its token limit with scraps of about the right number of words.
"""

from __future__ import annotations

import math

from gym_runtime import Environment, Reply, Task, Verdict


class WordCountTask(Task):
    words: int


async def verify(task: WordCountTask, reply: Reply) -> Verdict:
    said = len(reply.text.split())
    whole = reply.response.incomplete_details is None
    reward = math.exp(-abs(said - task.words) / task.words) if said and whole else 0.0
    return Verdict(reward, fields={"words_said": said, "cut_short": float(not whole)})


environment = Environment(
    resource=verify,
    agent="single_turn",
    description="Write in an exact number of words.",
    domain="instruction_following",
)
