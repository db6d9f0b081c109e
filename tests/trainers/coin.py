"""Every second verdict on a task is 1 if it is fair; else all are what the task says."""

from __future__ import annotations

from collections import Counter

from gym_runtime import Environment, Reply, Task, Verdict

_thrown = Counter[int]()


class CoinTask(Task):
    number: int
    wins: float


async def verify(task: CoinTask, reply: Reply) -> Verdict:
    _thrown[task.number] += 1
    return Verdict(
        float(_thrown[task.number] % 2) if task.wins == 0.5 else task.wins, fields={"wins": task.wins}
    )


environment = Environment(resource=verify, agent="single_turn", description="Throws a coin.")
