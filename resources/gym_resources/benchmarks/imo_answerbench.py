"""400 problems of olympiads with short answers (IMO-AnswerBench).

The verifier is that of `math_with_autograder`, the repeats are NeMo Gym's; the prompt is NeMo Gym's and NeMo
Skills', that of ``--prompt nemo-gym`` of other benchmarks. The score is the mean over 4 rollouts, and the
same by category. Source: Luong et al. 2025, arXiv:2511.01846 (github.com/google-deepmind/superhuman,
CC-BY-4.0); the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gym_runtime import Asset, Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import math_with_autograder
from gym_resources.benchmarks.aime24 import NEMO_GYM
from gym_resources.benchmarks.scoring.shares import by_category

COMMIT = "f9609602ba40dc900483d1561a71c86fedb2005e"
PROBLEMS = Asset(
    name="imo-answerbench",
    description="the problems of IMO-AnswerBench",
    licence="CC-BY-4.0",
    urls={
        "answerbench.csv": f"https://raw.githubusercontent.com/google-deepmind/superhuman/{COMMIT}/imobench/answerbench.csv"
    },
    size_bytes=5_000_000,
    setting="GYM_IMO_BENCH",
    page="https://github.com/google-deepmind/superhuman",
)


def rows(problems: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in problems:
        yield {
            "question": one["Problem"],
            "expected_answer": one["Short Answer"],
            "problem_id": one["Problem ID"],
            **{name.lower(): one[name] for name in ("Category", "Subcategory", "Source")},
        }


environment = replace(
    math_with_autograder.environment,
    description="Problems of olympiads with short answers (IMO-AnswerBench).",
    repeats=4,
    benchmark=Benchmark(prompt=NEMO_GYM, score=partial(by_category, field="category"), fields=("category",)),
    datasets=(
        DatasetSource(
            asset=PROBLEMS, file="answerbench.csv", split="benchmark", license="CC-BY-4.0", rows=rows
        ),
    ),
    agent_refs=(),
)
