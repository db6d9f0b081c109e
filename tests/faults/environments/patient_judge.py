"""Asks its judge, notes which process did so, and then waits until it is let go."""

from pathlib import Path

import anyio
from gym_runtime import Environment, Model, Reply, Task, Verdict


class Question(Task):
    folder: str


async def verify(task: Question, reply: Reply, judge: Model) -> Verdict:
    import os

    said = await judge.ask(f"Is {reply.text} right?", temperature=0.0)
    folder = Path(task.folder)
    (folder / f"{os.getpid()}.asked").touch()
    while not (folder / "release").exists():
        await anyio.sleep(0.02)
    return Verdict(float(bool(said.text)), fields={"verified_by": os.getpid()})


environment = Environment(
    resource=verify, description="Judged, after a while.", agent="single_turn", roles=("judge",)
)
