"""American Invitational Mathematics Examination of 2024 in German, Spanish, French and Japanese.

The verifier is that of `math_with_judge`. The prompt asks in the problem's language, in our own words. The
score is the mean over 8 rollouts of a problem, and the same by language; ``aime24_x:de`` has one language.
The names of the files are those under which the hub's library stores splits. Source: NVIDIA's translations
(nvidia/Nemotron-Multilinugual-Eval-AIME24), whose licence its card says; the example rows are our own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gym_runtime import Benchmark
from msgspec.structs import replace

from gym_resources import math_with_judge
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.published_sets.languages import BOXED, NVIDIA, in_languages


def row(problem: dict[str, Any], language: str) -> dict[str, Any]:
    asked = BOXED[language].format()
    return {
        "instruction": asked,
        "problem": problem["problem"],
        "expected_answer": str(problem["expected_answer"]),
    }


environment = replace(
    math_with_judge.environment,
    description="American Invitational Mathematics Examination 2024 in four languages.",
    repeats=8,
    benchmark=Benchmark(
        prompt="{instruction}\n\n{problem}",
        score=partial(by_category, field="language"),
        fields=("language",),
    ),
    data_license="see the card of nvidia/Nemotron-Multilinugual-Eval-AIME24",
    datasets=in_languages(
        "nvidia/Nemotron-Multilinugual-Eval-AIME24", "data/{}-00000-of-00001.parquet", NVIDIA, row, ""
    ),
    agent_refs=(),
)
