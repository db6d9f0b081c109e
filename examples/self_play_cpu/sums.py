"""Sums for a proposer and a critic, both trained: one answers, the other says whether it is right.

The proposer's reward is 1 if its last answer is right. The critic's is the share of the answers it judged
that it judged rightly: it accepted a right one, or did not accept a wrong one.
"""

from __future__ import annotations

from gym_runtime import Environment, Reply, Role, Task, Verdict

ROUNDS = 2
"""Critiques that the agent asks for at most; the answer after them is not judged."""


class Sum(Task):
    a: int
    b: int


async def verify(task: Sum, reply: Reply) -> Verdict:
    right = [message.text == str(task.a + task.b) for message in reply.messages]
    judged = right[:ROUNDS]
    # The last one was accepted, if the critic saw it.
    well = [is_right == (place == len(right) - 1) for place, is_right in enumerate(judged)]
    rewards = {"proposer": float(bool(right) and right[-1]), "critic": sum(well) / max(1, len(well))}
    return Verdict(rewards["proposer"], fields={"answers": len(right)}, rewards=rewards)


environment = Environment(
    resource=verify,
    agent="proposer_critic",
    roles=(Role(name="critic", optional=True),),
    description="Sums for a proposer and a critic.",
    domain="math",
    max_turns=8,
)
