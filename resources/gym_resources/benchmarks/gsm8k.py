"""1,319 word problems of school mathematics whose answers are numbers (GSM8K).

Verifier and prompt are those of `math500`; the authors publish none for chat models. The expected answer is
what follows ``####`` in the published solution, without commas. Some published answers are wrong or cannot be
compared: `CORRECTED` replaces those of eleven problems, for which NeMo Gym has a list too. Two of them were
worked out again: 1,060 litres of honey and 12 green chips, where that list has 2,740 and 15.
Source: Cobbe et al. 2021, arXiv:2110.14168, github.com/openai/grade-school-math, MIT; the example rows are
our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources.benchmarks import math500
from gym_resources.benchmarks.aime24 import NEMO_GYM
from gym_resources.benchmarks.scoring.shares import accuracy

CORRECTED = {
    "Mr. Finnegan has 3 tanks with a capacity of 7000 gallons": "10750",
    "If you double a number and add 5 to the result, then that's 20 more": "10",
    "John has 2 hives of bees.  One of the hives has 1000 bees": "1060",
    "Three blue chips are in a jar which is 10% of the entire chips": "12",
    "Janet filmed a new movie that is 60% longer than her previous": "19200",
    "Students at Highridge High earn 2 points for each correct answer": "64",
    "Robert and Teddy are planning to buy snacks for their friends": "108",
    "James invests $2000 a week into his bank account": "531000",
    "James does chores around the class.  There are 3 bedrooms": "6",
    "During one game, a total of 50 people attended a baseball team": "13",
    "Pete has to take a 10-minute walk down to the train station": "07:30",
}
"""The right answers, by how the question begins."""


def rows(problems: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in problems:
        _, _, published = one["answer"].rpartition("####")
        corrected = (right for start, right in CORRECTED.items() if one["question"].startswith(start))
        yield {
            "problem": one["question"],
            "expected_answer": next(corrected, published.strip().replace(",", "")),
        }


environment = replace(
    math500.environment,
    description="Word problems of school mathematics whose answers are numbers (GSM8K).",
    benchmark=Benchmark(prompt=math500.PROMPT, prompts={"nemo-gym": NEMO_GYM}, score=accuracy),
    datasets=(
        DatasetSource(
            repo_id="openai/gsm8k",
            file="main/test-00000-of-00001.parquet",
            split="benchmark",
            license="MIT",
            rows=rows,
        ),
    ),
    agent_refs=(),
)
