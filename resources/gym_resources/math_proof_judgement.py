"""Is a proof right? Yes or no (NeMo Gym's benchmarks proof-arena-judge, proof_bench_judge, answer-judge).

The judgement is the last ``Judgement: Yes`` or ``Judgement: No`` of the reply, in any case, with or without
tags; the reward is 1 if it is the row's ``expected_judgement``. A reply without one is worth 0. The score is
the share that is right, and the F1, precision and recall of finding right proofs.

Rows and rewards are those of NeMo Gym's environment of this name; the example rows are our own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gym_runtime import Benchmark, Environment, Reply, ScoredRollout, Task, Verdict

from gym_resources.benchmarks.scoring.shares import accuracy, found_and_missed

_JUDGEMENT = re.compile(r"judge?ment[*_]{0,2}:[\s*_]{0,4}(yes|no)\b", re.IGNORECASE)


class JudgementTask(Task):
    expected_judgement: str

    def __post_init__(self) -> None:
        if judgement(self.expected_judgement) is None:
            raise ValueError("'expected_judgement' is 'Judgement: Yes' or 'Judgement: No'")


def judgement(text: str) -> bool | None:
    """What a text says last of a proof.

    >>> judgement("Judgement: Yes? <judgement>Judgement: No</judgement>"), judgement("No")
    (False, None)
    """
    found = _JUDGEMENT.findall(text)
    return found[-1].lower() == "yes" if found else None


async def verify(task: JudgementTask, reply: Reply) -> Verdict:
    said, expected = judgement(reply.joined_text), judgement(task.expected_judgement)
    return Verdict(float(said is expected), fields={"predicted": said, "expected": expected})


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """Accuracy, F1, precision and recall."""
    return {**accuracy(rollouts), **found_and_missed(rollouts, "predicted", "expected")}


environment = Environment(
    resource=verify,
    description="Judge whether a proof is right, yes or no.",
    domain="math",
    agent="single_turn",
    benchmark=Benchmark(score=score, fields=("predicted", "expected")),
    data_license="Apache-2.0 (own rows)",
    agent_refs=("proof_arena_judge", "proof_bench_judge", "answer_judge"),
)
