"""Which of two proofs of a problem is the better one?

The choice is the content of the last ``<best_solution>`` pair of tags, 1 or 2; the reward is 1 if it is the
row's ``correct_index``, else 0. Rows and rewards are those of NeMo Gym's environment of this name; the
example rows are our own.
"""

from __future__ import annotations

from typing import Annotated

from gym_runtime import Benchmark, Environment, Reply, Task, Verdict
from msgspec import Meta

from gym_resources.benchmarks.scoring.shares import accuracy
from gym_resources.extract.tagged import last_tagged


class SelectionTask(Task):
    correct_index: Annotated[int, Meta(ge=1, le=2)]


async def verify(task: SelectionTask, reply: Reply) -> Verdict:
    chosen = last_tagged(reply.joined_text, "best_solution")
    found = int(chosen) if chosen in ("1", "2") else None
    return Verdict(float(found == task.correct_index), fields={"extracted_answer": found})


environment = Environment(
    resource=verify,
    description="Choose the better of two proofs.",
    domain="math",
    agent="single_turn",
    benchmark=Benchmark(score=accuracy),
    data_license="Apache-2.0 (own rows)",
)
