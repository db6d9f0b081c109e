"""A sum to work out: a reply ends with the number that the row expects, after "is" or alone.

Change the task's fields and the rule, and write your rows beside it; `gym-runtime test`
says what is missing. It tries wrong replies, too, those of `off_by_one` among them;
`gym-runtime audit` tries many more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gym_runtime import Environment, Reply, Task, Verdict
from gym_testing.audit import Target, near_miss

ANSWER = re.compile(r"(?:.* is )?([-+]?[0-9]{1,20})(?:\.0*)?", re.DOTALL)


class SumTask(Task):
    expected: int


async def verify(task: SumTask, reply: Reply) -> Verdict:
    found = ANSWER.fullmatch(reply.text.strip())
    said = int(found[1]) if found else None  # 12, +12 and 12.0 are the same number
    return Verdict(float(said == task.expected), fields={"said": said})


@near_miss()
def off_by_one(target: Target) -> Iterator[str]:
    """A wrong reply that is nearly right, for the audit."""
    yield f"It is {int(target.row['expected']) + 1}"


environment = Environment(resource=verify, description="Work out a sum.", domain="math")
