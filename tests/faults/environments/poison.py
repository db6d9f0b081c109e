"""Some of its rows end the worker that judges them: at once, or after a while beside others."""

import os

import anyio
from gym_runtime import Environment, Reply, Task, Verdict


class PoisonTask(Task):
    poison: bool = False
    takes_s: float = 0.0


async def verify(task: PoisonTask, reply: Reply) -> Verdict:
    if task.takes_s:
        await anyio.sleep(task.takes_s)
    if task.poison:
        os._exit(7)
    return Verdict(1.0)


environment = Environment(resource=verify, description="Is deadly.", agent="single_turn")
