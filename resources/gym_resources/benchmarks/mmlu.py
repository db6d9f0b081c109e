"""Multiple-choice questions of 57 subjects, from elementary to professional (MMLU): 14,042 questions.

The verifier is `mcqa`'s, which reads the letter after the last ``Answer:``. The prompt is that of OpenAI's
simple-evals (MIT), without worked examples, as for chat models; the authors' own figures are of five-shot
completions and differ. The score is the share that is right, and the same by subject.
Source: Hendrycks et al. 2020, arXiv:2009.03300 (MIT); the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import mcqa
from gym_resources.benchmarks.gpqa import PROMPT
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.published_sets import choices
from gym_resources.published_sets.choices import choice_row


def rows(questions: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in questions:
        yield choice_row(one["question"], one["choices"], int(one["answer"]), subject=one["subject"])


environment = replace(
    mcqa.environment,
    resource=choices.verify,
    description="Multiple-choice questions of 57 subjects (MMLU).",
    benchmark=Benchmark(
        prompt=PROMPT,
        prompts={"nemo-gym": choices.ASKED_FOR_LETTER},
        score=partial(by_category, field="subject"),
        fields=("subject",),
    ),
    data_license="MIT",
    datasets=(
        DatasetSource(
            repo_id="cais/mmlu",
            file="all/test-00000-of-00001.parquet",
            split="benchmark",
            license="MIT",
            rows=rows,
        ),
    ),
    agent_refs=(),
)
