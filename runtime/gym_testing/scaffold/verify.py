"""A sum to work out: the answer's last word must be the number that the row expects.

Change the task's fields and the rule, write your rows beside it; `gym-runtime test` says what is missing.
"""

from __future__ import annotations

from gym_runtime import Environment, Reply, Task, Verdict


class SumTask(Task):
    expected: int


async def verify(task: SumTask, reply: Reply) -> Verdict:
    words = reply.text.split()
    said = words[-1].rstrip(".") if words else ""
    return Verdict(float(said == str(task.expected)), fields={"said": said})


environment = Environment(resource=verify, description="Work out a sum.", domain="math")
