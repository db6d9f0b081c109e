"""American Invitational Mathematics Examination of 2024: 30 problems with answers from 0 to 999.

The verifier is that of `math_with_judge`. The prompt is MathArena's, published with its competitions
(github.com/eth-sri/matharena, ``configs/competitions``, MIT); the repeats are NeMo Gym's. The score is the
mean over 32 rollouts of a problem, and that of the majority among them. The problems belong to the
Mathematical Association of America; the data set names no licence, and the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import math_with_judge
from gym_resources.benchmarks.scoring.shares import accuracy_and_majority

PROMPT = """\
Put your final answer within \\boxed{{}}.
The answer is an integer between 0 and 999 inclusive.

{problem}"""
NEMO_GYM = """\
Solve the following math problem. Make sure to put the answer (and only answer) inside \\boxed{{}}.

{problem}"""
"""That of NeMo Skills and NeMo Gym (Apache-2.0)."""


def rows(problems: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in problems:
        yield {"problem": one["problem"], "expected_answer": str(int(one["answer"]))}


environment = replace(
    math_with_judge.environment,
    description="American Invitational Mathematics Examination 2024, 30 problems.",
    repeats=32,
    benchmark=Benchmark(
        prompt=PROMPT,
        prompts={"nemo-gym": NEMO_GYM},
        score=accuracy_and_majority,
        fields=("extracted_answer",),
    ),
    data_license="not stated (HuggingFaceH4/aime_2024)",
    datasets=(
        DatasetSource(
            repo_id="HuggingFaceH4/aime_2024",
            file="data/train-00000-of-00001.parquet",
            split="benchmark",
            license="",
            rows=rows,
        ),
    ),
    agent_refs=(),
)
