"""Rows that end the agent worker after each new turn, by the agent `poison_turns_agent`."""

from gym_runtime import Environment, Reply, Task, Verdict


class PoisonTask(Task):
    poison: bool = False


async def verify(task: PoisonTask, reply: Reply) -> Verdict:
    return Verdict(1.0)


environment = Environment(
    resource=verify, description="Is asked again and again by a deadly agent.", agent="poison_turns_agent"
)
