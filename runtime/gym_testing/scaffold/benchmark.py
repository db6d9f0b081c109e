"""A benchmark: published sums, asked with one prompt and reported as one score.

Name the published file and say what becomes of its records; change the prompt, the rule
and the score. Then `gym-runtime prepare` fetches the rows; those beside it are examples.
`gym-runtime test` says what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from gym_runtime import (
    Benchmark,
    DatasetSource,
    Environment,
    Reply,
    ScoredRollout,
    Task,
    Verdict,
)

ANSWER = re.compile(r"(?:.* is )?([-+]?[0-9]{1,20})(?:\.0*)?", re.DOTALL)


class SumTask(Task):
    expected: int


async def verify(task: SumTask, reply: Reply) -> Verdict:
    found = ANSWER.fullmatch(reply.text.strip())
    said = int(found[1]) if found else None  # 12, +12 and 12.0 are the same number
    return Verdict(float(said == task.expected))


def rows(records: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for record in records:
        yield {"question": record["question"], "expected": int(record["answer"])}


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    return {"accuracy": 100 * fmean(rollout.reward for rollout in rollouts)}


environment = Environment(
    resource=verify,
    agent="single_turn",
    description="Work out sums.",
    domain="math",
    benchmark=Benchmark(
        prompt="{question} End your answer with the number.",
        score=score,
    ),
    datasets=(
        DatasetSource(
            repo_id="you/sums",
            file="test.jsonl",
            split="benchmark",
            license="MIT",
            rows=rows,
        ),
    ),
)
