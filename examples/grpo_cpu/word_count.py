"""Write about a topic in an exact number of words. The nearer, the better; an answer cut short has 0.

Without that rule a model learns to fill its token limit with scraps of about the right number of words.
Figures, signs and repeated words are no words either, and an answer that does not name its topic gets half.
"""

from __future__ import annotations

import math

from gym_runtime import Environment, Reply, Task, Verdict


class WordCountTask(Task):
    topic: str
    words: int


async def verify(task: WordCountTask, reply: Reply) -> Verdict:
    said = reply.text.split()
    bare = [word.strip(".,;:!?\"'()").lower() for word in said]
    plain = {word for word in bare if word.replace("-", "").replace("'", "").isalpha()}
    whole = reply.response.incomplete_details is None
    named = task.topic in reply.text.lower()
    reward = 0.0
    if said and whole:
        closeness = math.exp(-abs(len(said) - task.words) / task.words)
        reward = closeness * len(plain) / len(said) * (1.0 if named else 0.5)
    exact = whole and len(said) == task.words
    numbers = {"words_said": len(said), "exact": exact, "cut_short": not whole, "named": named}
    return Verdict(reward, fields={**numbers, "plain": len(plain) / max(1, len(said))})


environment = Environment(
    resource=verify,
    agent="single_turn",
    description="Write in an exact number of words.",
    domain="instruction_following",
)
