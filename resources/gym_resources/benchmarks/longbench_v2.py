"""503 multiple-choice questions on contexts of 8,000 to 2 million words (LongBench v2).

The prompt is the authors' for answers without worked steps (github.com/THUDM/LongBench, MIT), and so is the
rule: the letter behind ``The correct answer is``, in parentheses or not. Different on purpose: the last such
statement counts, not the first, and a reply without one is read by `mcqa`'s rule for ``Answer:``. Contexts
are never cut; the authors cut the middle out of those that a model cannot hold. The score is the share that
is right, and the same by length. Source: Bai et al. 2024, arXiv:2412.15204 (Apache-2.0); the example rows are
our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import mcqa
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.published_sets.choices import choice_row

PROMPT = """\
Please read the following text and answer the question below.

<text>
{context}
</text>

What is the correct answer to this question: {question}
Choices:
{choices}

Format your response as follows: "The correct answer is (insert answer here)"."""
STATED = r"the correct answer is:?[\s*]{0,4}\(?([A-D])\b"


def rows(questions: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in questions:
        options = [one[f"choice_{letter}"] for letter in "ABCD"]
        about = {name: one[name] for name in ("domain", "sub_domain", "difficulty", "length")}
        row = choice_row(one["question"], options, one["answer"], uuid=one["_id"], **about)
        choices = "\n".join(f"({letter}) {text}" for letter, text in zip("ABCD", options, strict=True))
        asked = PROMPT.format(context=one["context"], question=one["question"], choices=choices)
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": asked}]},
            **row,
            "template_metadata": {"output_regex": STATED},
        }


environment = replace(
    mcqa.environment,
    description="Multiple-choice questions on very long contexts (LongBench v2).",
    domain="long_context",
    benchmark=Benchmark(score=partial(by_category, field="length"), fields=("length",)),
    data_license="Apache-2.0",
    datasets=(
        DatasetSource(
            repo_id="THUDM/LongBench-v2",
            file="data.json",
            split="benchmark",
            license="Apache-2.0",
            rows=rows,
        ),
    ),
    agent_refs=(),
)
