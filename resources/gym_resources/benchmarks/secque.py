"""565 questions of analysts on filings of companies: ratios, comparisons, risks, insights (SECQUE).

The prompt, that of `financebench`, has the excerpt that comes with a question. A judge compares the answer
with the expert's, by the rule of `lc_judge`; the authors ask several judges for three grades. The score is
the share that is right, and the same by kind of question.
Source: Ben Yoash et al. 2025, arXiv:2504.04596 (MIT, for evaluation only); the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from gym_runtime import DatasetSource
from msgspec.structs import replace

from gym_resources.benchmarks import financebench

FILES = tuple(f"SECQUE_benchmark_{kind}.jsonl" for kind in ("Analysis", "Comparison", "Ratio", "Risk"))


def rows(*files: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in chain(*files):
        yield {
            "question": one["Question"].strip(),
            "context": one["context_markdown_with_headers"],
            "expected_answer": one["ground_truth_answer"].strip(),
            "question_type": one["question_type"],
            "id": str(one["QID"]),
        }


environment = replace(
    financebench.environment,
    description="Questions of analysts on filings of companies (SECQUE).",
    data_license="MIT, for evaluation only",
    datasets=(
        DatasetSource(
            repo_id="nogabenyoash/SecQue",
            file=FILES[0],
            further_files=FILES[1:],
            split="benchmark",
            license="MIT, for evaluation only",
            rows=rows,
        ),
    ),
)
