"""A verifier that runs in its own process."""

from gym_runtime import Environment, Reply, Task, Verdict


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == "done"))


environment = Environment(
    resource=verify,
    description="Is judged elsewhere.",
    agent="single_turn",
    isolated=True,
    verify_timeout_s=20,
)
