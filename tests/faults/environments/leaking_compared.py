"""The comparison of some groups cancels, as `leaking` does."""

from gym_runtime import Candidates, Environment, Pending, Reply, Task, Verdict
from leaking import leak


class LeakTask(Task):
    at: str = ""
    way: str = ""


async def verify(task: LeakTask, reply: Reply) -> Pending:
    return Pending(0.0)


async def compare(candidates: Candidates[LeakTask]) -> list[Verdict]:
    if candidates.task.at == "compare":
        await leak(candidates.task.way)
    return [Verdict(1.0) for _ in candidates.features(float)]


environment = Environment(resource=verify, compare=compare, description="Leaks.", agent="single_turn")
