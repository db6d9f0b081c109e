r"""Graduate-level science questions in German, Spanish, French and Japanese: GPQA Diamond, translated.

The verifier is `mcqa`'s in its mode ``strict_single_letter_boxed``: the letter in the last ``\boxed{}``. The
prompt asks in the question's language, in our own words. The score is the mean over 8 rollouts of a question,
and the same by language; ``gpqa_x:de`` has one language. The names of the files are those under which the
hub's library stores splits. Source: NVIDIA's translations (nvidia/Nemotron-Multilinugual-Eval-GPQA) of GPQA
(Rein et al. 2023, CC-BY-4.0), which asks not to be shown in plain text; the example rows are our own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gym_runtime import Benchmark
from msgspec.structs import replace

from gym_resources import mcqa
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.published_sets.choices import choice_row
from gym_resources.published_sets.languages import BOXED, NVIDIA, in_languages


def row(question: dict[str, Any], language: str) -> dict[str, Any]:
    options = [str(question[letter]) for letter in "ABCD"]
    made = choice_row(question["problem"], options, str(question["expected_answer"]))
    return {**made, "instruction": BOXED[language].format(), "grading_mode": "strict_single_letter_boxed"}


environment = replace(
    mcqa.environment,
    description="Graduate-level multiple-choice questions of science in four languages (GPQA).",
    repeats=8,
    benchmark=Benchmark(
        prompt="{instruction}\n\n{question}\n\n{options_text}",
        score=partial(by_category, field="language"),
        fields=("language",),
    ),
    data_license="CC-BY-4.0",
    datasets=in_languages(
        "nvidia/Nemotron-Multilinugual-Eval-GPQA",
        "data/{}-00000-of-00001.parquet",
        NVIDIA,
        row,
        "CC-BY-4.0",
    ),
    agent_refs=(),
)
