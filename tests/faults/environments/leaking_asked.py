"""Rows whose agent cancels, by the agent `leaking_agent`."""

from gym_runtime import Environment, Reply, Task, Verdict


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)


environment = Environment(
    resource=verify, description="Is asked by an agent that leaks.", agent="leaking_agent"
)
