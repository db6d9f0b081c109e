"""A sum to work out: the answer must end with the number that the row expects, after "is" or alone.

Change the task's fields and the rule, write your rows beside it; `gym-runtime test` says what is missing. It
tries wrong replies, too, those of `off_by_one` among them; `gym-runtime audit` tries many more.
"""

from __future__ import annotations

from collections.abc import Iterator

from gym_runtime import Environment, Reply, Task, Verdict

from gym_testing.audit import Target, near_miss


class SumTask(Task):
    expected: int


async def verify(task: SumTask, reply: Reply) -> Verdict:
    before, _, last = reply.text.rstrip(" .\n").rpartition(" ")
    said = last if not before or before.endswith(" is") else ""
    return Verdict(float(said == str(task.expected)), fields={"said": said})


@near_miss()
def off_by_one(target: Target) -> Iterator[str]:
    """A wrong reply that is nearly right, for the audit."""
    yield f"It is {int(target.row['expected']) + 1}"


environment = Environment(resource=verify, description="Work out a sum.", domain="math")
