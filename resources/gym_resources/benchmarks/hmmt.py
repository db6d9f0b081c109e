r"""Harvard-MIT Mathematics Tournaments of 2025: 30 problems each of February and November.

The answers are expressions, sets and tuples in LaTeX. Verifier and score are those of `aime24`, the prompt is
MathArena's (github.com/eth-sri/matharena, ``configs/competitions``, MIT); four repeats, as there and in NeMo
Gym. MathArena compares with a parser of its own, here `math-verify` does. A judge can look at what it does
not find equal (``--judge PROVIDER/NAME``); the published figures are without one. Source: MathArena's data
sets, CC-BY-NC-SA-4.0, which are fetched and not shipped; the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources.benchmarks import aime24
from gym_resources.benchmarks.scoring.shares import accuracy_and_majority

PROMPT = """\
Put your final answer within \\boxed{{}}.

{problem}"""
FILE = "data/train-00000-of-00001.parquet"
LICENSE = "CC-BY-NC-SA-4.0"


def rows(problems: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in problems:
        yield {"problem": one["problem"], "expected_answer": str(one["answer"])}


environment = replace(
    aime24.environment,
    description="Harvard-MIT Mathematics Tournament 2025, 30 problems of February, 30 of November.",
    repeats=4,
    benchmark=Benchmark(
        prompt=PROMPT,
        prompts={"nemo-gym": aime24.NEMO_GYM},
        score=accuracy_and_majority,
        fields=("extracted_answer",),
    ),
    data_license=LICENSE,
    datasets=tuple(
        DatasetSource(repo_id=repository, file=FILE, split="benchmark", license=LICENSE, name=name, rows=rows)
        for name, repository in (("", "MathArena/hmmt_feb_2025"), ("nov25", "MathArena/hmmt_nov_2025"))
    ),
)
