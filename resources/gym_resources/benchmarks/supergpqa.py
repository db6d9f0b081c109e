"""Multiple-choice questions of 285 fields of graduate study with up to ten options (SuperGPQA): 26,529.

The verifier is `mcqa`'s, which reads the letter after the last ``Answer:``; the prompt is our own, zero-shot.
The score is the share that is right, and the same by discipline.
Source: M-A-P 2025, arXiv:2502.14739 (ODC-BY); the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import mcqa
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.published_sets import choices
from gym_resources.published_sets.choices import PROMPT, choice_row


def rows(questions: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in questions:
        about = {name: one[name] for name in ("uuid", "discipline", "field", "difficulty")}
        yield choice_row(one["question"], one["options"], one["answer_letter"], **about)


environment = replace(
    mcqa.environment,
    resource=choices.verify,
    description="Multiple-choice questions of 285 fields of graduate study (SuperGPQA).",
    benchmark=Benchmark(
        prompt=PROMPT, score=partial(by_category, field="discipline"), fields=("discipline",)
    ),
    data_license="ODC-BY",
    datasets=(
        DatasetSource(
            repo_id="m-a-p/SuperGPQA",
            file="SuperGPQA-all.jsonl",
            split="benchmark",
            license="ODC-BY",
            rows=rows,
        ),
    ),
    agent_refs=(),
)
