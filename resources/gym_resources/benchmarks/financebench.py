"""150 questions on filings of companies, answered from the pages that hold the answer (FinanceBench).

The prompt, our own, has the pages that the authors name as evidence; so it is their setting "oracle", whose
figures are the highest, and our reading of NeMo Gym's declaration. A judge compares the answer with the
expected one, by the rule of `lc_judge`. The score is the share that is right, and the same by kind of
question. Source: Islam et al. 2023, arXiv:2311.11944 (CC-BY-NC-4.0); the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import lc_judge
from gym_resources.benchmarks.scoring.shares import by_category

PROMPT = """\
Answer the question from the excerpts of filings below. Show how you get to a figure.

{context}

QUESTION: {question}"""


def rows(questions: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in questions:
        pages = [f"[{page['doc_name']}]\n{page['evidence_text_full_page']}" for page in one["evidence"]]
        yield {
            "question": one["question"],
            "context": "\n\n".join(dict.fromkeys(pages)),
            "expected_answer": one["answer"],
            "question_type": one["question_type"],
            "id": one["financebench_id"],
        }


environment = replace(
    lc_judge.environment,
    description="Questions on filings of companies, answered from the pages that matter (FinanceBench).",
    domain="knowledge",
    benchmark=Benchmark(
        prompt=PROMPT, score=partial(by_category, field="question_type"), fields=("question_type",)
    ),
    data_license="CC-BY-NC-4.0",
    datasets=(
        DatasetSource(
            repo_id="PatronusAI/financebench",
            file="financebench_merged.jsonl",
            split="benchmark",
            license="CC-BY-NC-4.0",
            rows=rows,
        ),
    ),
)
