"""The public questions of Vals AI's finance agent benchmark, for `finance_sec_search`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_runtime import Asset, DatasetSource

COMMIT = "6f21502112937c4d7dbfa7ec005d704e5c5a8e3d"
QUESTIONS = Asset(
    name="finance-agent",
    description="the public questions of Vals AI's finance agent benchmark",
    licence="MIT",
    urls={
        "public.csv": f"https://raw.githubusercontent.com/vals-ai/finance-agent/{COMMIT}/data/public.csv",
    },
    size_bytes=1_000_000,
    setting="GYM_FINANCE_AGENT",
    page="https://github.com/vals-ai/finance-agent",
)


def rows(questions: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of the public questions of Vals AI's finance agent benchmark."""
    for one in questions:
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": one["Question"].strip()}]},
            "question": one["Question"].strip(),
            "expected_answer": one["Answer"].strip(),
            "question_type": one["Question Type"],
        }


PUBLIC = DatasetSource(asset=QUESTIONS, file="public.csv", split="benchmark", license="MIT", rows=rows)
