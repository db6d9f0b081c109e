r"""Multiple-choice questions on whole repositories of code (LongCodeQA of LongCodeBench).

The rows bring the authors' prompt, to which a sentence asks for the letter in ``\boxed{}``; the verifier is
`mcqa`'s in its mode ``strict_single_letter_boxed``. The score is the share that is right, and the same for
hard questions and for others. Source: Rando et al. 2025, arXiv:2505.07897, data set Steefano/LCB, whose
licence its card says; the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gym_runtime import Benchmark, DatasetSource, ScoredRollout
from msgspec.structs import replace

from gym_resources import mcqa
from gym_resources.benchmarks.scoring.shares import accuracy, by_truth

ASKED = (
    "\n\nThe last line of your response should be 'Answer: \\boxed{X}', where X is the letter A, B, C or D."
)


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """Accuracy, and that of the hard questions and of the others."""
    return {**accuracy(rollouts), **by_truth(rollouts, "is_hard", ("not hard", "hard"))}


def rows(questions: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in questions:
        asked = one["prompt"].strip() + ASKED
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": asked}]},
            "options": [{letter: letter} for letter in "ABCD"],
            "expected_answer": one["correct_letter"],
            "grading_mode": "strict_single_letter_boxed",
            "repo": one["repo"],
            "is_hard": bool(one["is_hard"]),
        }


environment = replace(
    mcqa.environment,
    description="Multiple-choice questions on whole repositories of code (LongCodeBench).",
    domain="long_context",
    benchmark=Benchmark(score=score, fields=("is_hard",)),
    data_license="see the card of Steefano/LCB",
    datasets=(
        DatasetSource(
            repo_id="Steefano/LCB", file="LongCodeQA.zip", split="benchmark", license="", rows=rows
        ),
    ),
    agent_refs=(),
)
