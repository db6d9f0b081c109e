"""Mathematical problems of four levels in 18 languages (PolyMath).

The verifier is that of `math_with_judge`; a model in the role ``judge`` takes a second look where one is
named. The score is the authors': the accuracy of the levels, weighted 1, 2, 4 and 8 from low to top (a row's
``weight``), of all languages and of each. The prompt is our own, in English; the authors ask in the problem's
language. ``polymath:de`` has one language.

Rows are those of NeMo Gym's environment of this name, which is this benchmark. Source: Wang et al. 2025,
arXiv:2504.18428 (Apache-2.0; the data set Qwen/PolyMath); the example rows are our own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from gym_runtime import Benchmark, DatasetSource, ScoredRollout
from msgspec.structs import replace

from gym_resources import math_with_judge

PROMPT = "{question}\n\nPlease reason step by step, and put your final answer within \\boxed{{}}."
WEIGHTS = {"low": 1.0, "medium": 2.0, "high": 4.0, "top": 8.0}
LANGUAGES = (
    *("ar", "bn", "de", "en", "es", "fr", "id", "it", "ja"),
    *("ko", "ms", "pt", "ru", "sw", "te", "th", "vi", "zh"),
)


def weighted(rollouts: Sequence[ScoredRollout]) -> float:
    """The mean of the rewards by the rows' weights, in percent."""
    weights = [float(one.fields["weight"] or 1.0) for one in rollouts]
    right = sum(weight * one.reward for weight, one in zip(weights, rollouts, strict=True))
    return 100 * right / sum(weights)


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """The weighted accuracy, of all and of each language."""
    languages: dict[str, list[ScoredRollout]] = defaultdict(list)
    for one in rollouts:
        languages[str(one.fields["language"])].append(one)
    return {"weighted accuracy": weighted(rollouts)} | {
        language: weighted(languages[language]) for language in sorted(languages)
    }


def rows(*files: Iterator[dict[str, Any]], languages: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of files in the order of the languages, and of each language's levels."""
    places = [(language, level) for language in languages for level in WEIGHTS]
    for records, (language, level) in zip(files, places, strict=True):
        for one in records:
            yield {
                "question": one["question"],
                "expected_answer": str(one["answer"]),
                "language": language,
                "difficulty": level,
                "weight": WEIGHTS[level],
                "id": one["id"],
            }


def _source(name: str, languages: Sequence[str]) -> DatasetSource:
    first, *others = (f"{language}/{level}.parquet" for language in languages for level in WEIGHTS)
    return DatasetSource(
        repo_id="Qwen/PolyMath",
        file=first,
        further_files=tuple(others),
        split="benchmark",
        license="Apache-2.0",
        name=name,
        rows=partial(rows, languages=tuple(languages)),
    )


environment = replace(
    math_with_judge.environment,
    description="Mathematical problems of four levels in 18 languages (PolyMath).",
    benchmark=Benchmark(prompt=PROMPT, score=score, fields=("weight", "language")),
    data_license="Apache-2.0",
    datasets=(_source("", LANGUAGES), *(_source(language, [language]) for language in LANGUAGES)),
    agent_refs=(),
)
