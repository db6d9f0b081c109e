"""Multiple-choice questions with up to ten options in 29 languages (MMLU-ProX), translated from MMLU-Pro.

``mmlu_prox`` has all languages, ``mmlu_prox:de`` one. The verifier is `mcqa`'s, which reads the letter after
the last ``Answer:``; so the prompt is in English, in our own words, whatever the question's language, where
the authors ask in each language. The score is the share that is right, and the same by language.
Source: Xuan et al. 2025, arXiv:2503.10497 (MIT); the example rows are our own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gym_runtime import Benchmark
from msgspec.structs import replace

from gym_resources import mcqa
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.published_sets import choices
from gym_resources.published_sets.choices import PROMPT, choice_row
from gym_resources.published_sets.languages import in_languages

LANGUAGES = (
    *("af", "ar", "bn", "cs", "de", "en", "es", "fr", "hi", "hu", "id", "it", "ja", "ko", "mr"),
    *("ne", "pt", "ru", "sr", "sw", "te", "th", "uk", "ur", "vi", "wo", "yo", "zh", "zu"),
)


def row(question: dict[str, Any], language: str) -> dict[str, Any]:
    options = [question[f"option_{place}"] for place in range(10)]
    given = [option for option in options if option not in (None, "", "N/A")]
    about = {"category": question["category"], "question_id": question["question_id"]}
    return choice_row(question["question"], given, question["answer"], **about)


environment = replace(
    mcqa.environment,
    resource=choices.verify,
    description="Multiple-choice questions with up to ten options in 29 languages (MMLU-ProX).",
    benchmark=Benchmark(prompt=PROMPT, score=partial(by_category, field="language"), fields=("language",)),
    data_license="MIT",
    datasets=in_languages("li-lab/MMLU-ProX", "{}/test-00000-of-00001.parquet", LANGUAGES, row, "MIT"),
    agent_refs=(),
)
