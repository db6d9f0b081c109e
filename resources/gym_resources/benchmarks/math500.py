r"""500 problems of competitions in mathematics, of seven subjects and five levels (MATH-500).

The verifier is that of `math_with_judge`: the answer in the last ``\boxed{}`` is compared symbolically. The
score is the share that is right, and the same by level. The split is that of Lightman et al.
(arXiv:2305.20050) of the MATH data set (Hendrycks et al. 2021, arXiv:2103.03874); both are MIT. Its authors
publish no prompt for chat models: this one is our own, as in their data the answer is boxed. The example rows
are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import math_with_judge
from gym_resources.benchmarks.aime24 import NEMO_GYM
from gym_resources.benchmarks.scoring.shares import by_category

PROMPT = """\
Solve the problem step by step. Put the final answer, and nothing else, into \\boxed{{}}.

{problem}"""


def rows(problems: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in problems:
        yield {
            "problem": one["problem"],
            "expected_answer": one["answer"],
            "level": f"level {one['level']}",
            "subject": one["subject"],
            "unique_id": one["unique_id"],
        }


environment = replace(
    math_with_judge.environment,
    description="Problems of competitions in mathematics, of seven subjects and five levels (MATH-500).",
    benchmark=Benchmark(
        prompt=PROMPT,
        prompts={"nemo-gym": NEMO_GYM},
        score=partial(by_category, field="level"),
        fields=("level",),
    ),
    data_license="MIT",
    datasets=(
        DatasetSource(
            repo_id="HuggingFaceH4/MATH-500",
            file="test.jsonl",
            split="benchmark",
            license="MIT",
            rows=rows,
        ),
    ),
    agent_refs=("math_500",),
)
