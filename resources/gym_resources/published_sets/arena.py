"""The requests of Arena-Hard v2, each with the answer of its category's baseline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_runtime import DatasetSource

BASELINES = {"hard_prompt": "o3-mini-2025-01-31", "creative_writing": "gemini-2.0-flash-001"}
FOLDER = "data/arena-hard-v2.0"


def rows(
    questions: Iterator[dict[str, Any]], *baselines: Iterator[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Rows of the questions, with the answers of their category's baseline."""
    answers = {
        (category, one["uid"]): one["messages"][-1]["content"]["answer"]
        for category, records in zip(BASELINES, baselines, strict=True)
        for one in records
    }
    for one in questions:
        category = one["category"]
        yield {
            "uid": one["uid"],
            "category": category,
            "question": one["prompt"],
            "baseline_answer": answers[category, one["uid"]],
        }


HARD = DatasetSource(
    repo_id="lmarena-ai/arena-hard-auto",
    file=f"{FOLDER}/question.jsonl",
    further_files=tuple(f"{FOLDER}/model_answer/{model}.jsonl" for model in BASELINES.values()),
    split="benchmark",
    license="Apache-2.0",
    rows=rows,
)
