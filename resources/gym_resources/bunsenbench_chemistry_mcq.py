"""Multiple-choice questions of chemistry, answered by copying the choice between tags (BunsenBench).

The answer is the content of the last ``<choice>`` pair of tags; the reward is 1 if it is the wording of the
expected option, exactly but for spaces around it. Two options with the same wording are refused. The score is
the mean, and the same by field of chemistry.

Rows, repeats and rewards are those of NeMo Gym's environment of this name; that the last pair counts is our
reading. The example rows are our own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from gym_runtime import Benchmark, Environment, Reply, ScoredRollout, Task, Verdict

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.extract.tagged import last_tagged


class About(msgspec.Struct):
    bct_field: str | None = None


class ChemistryTask(Task):
    options: list[dict[str, str]]
    expected_answer: str
    metadata: About | None = None

    def __post_init__(self) -> None:
        wordings = [wording.strip() for option in self.options for wording in option.values()]
        if len(set(wordings)) < len(wordings):
            raise ValueError("'options' has two with the same wording")
        if not self.wanted:
            raise ValueError(f"'expected_answer' {self.expected_answer[:20]!r} names none of the options")

    @property
    def wanted(self) -> str:
        """The wording of the right option."""
        return next(
            (one[self.expected_answer].strip() for one in self.options if self.expected_answer in one), ""
        )


async def verify(task: ChemistryTask, reply: Reply) -> Verdict:
    chosen = last_tagged(reply.joined_text, "choice")
    field = task.metadata.bct_field if task.metadata else None
    return Verdict(float(chosen == task.wanted), fields={"extracted_answer": chosen, "field": field})


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """The mean, of all and of each field of chemistry."""
    return by_category(rollouts, "field")


environment = Environment(
    resource=verify,
    description="Multiple-choice questions of chemistry, answered with the choice's wording (BunsenBench).",
    domain="knowledge",
    agent="single_turn",
    repeats=8,
    benchmark=Benchmark(score=score, fields=("field",)),
    data_license="Apache-2.0 (own rows)",
)
