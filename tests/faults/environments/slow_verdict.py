"""An isolated verifier that takes a second."""

import time

from gym_runtime import Environment, Reply, Task, Verdict


async def verify(task: Task, reply: Reply) -> Verdict:
    time.sleep(1)  # noqa: ASYNC251 - in its own process
    return Verdict(float(reply.text == "done"))


environment = Environment(
    resource=verify, description="Is judged elsewhere, slowly.", agent="single_turn", isolated=True
)
