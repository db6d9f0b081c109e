"""Questions of MMLU that people have checked again: 100 of each of its 57 subjects (MMLU-Redux 2.0).

Prompt, verifier and score are those of `mmlu`. Questions without an error are taken as they are, and those
with a wrong key get the right one where the checkers name it; all others (unclear questions or options, no
or several right answers) are left out. That selection is our reading: NeMo Gym's is not described.
Source: Gema et al. 2024, arXiv:2406.04127 (CC-BY-4.0); the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_runtime import DatasetSource
from msgspec.structs import replace

from gym_resources.benchmarks import mmlu
from gym_resources.published_sets.choices import choice_row

SUBJECTS = (
    *("abstract_algebra", "anatomy", "astronomy", "business_ethics", "clinical_knowledge"),
    *("college_biology", "college_chemistry", "college_computer_science", "college_mathematics"),
    *("college_medicine", "college_physics", "computer_security", "conceptual_physics", "econometrics"),
    *("electrical_engineering", "elementary_mathematics", "formal_logic", "global_facts"),
    *("high_school_biology", "high_school_chemistry", "high_school_computer_science"),
    *("high_school_european_history", "high_school_geography", "high_school_government_and_politics"),
    *("high_school_macroeconomics", "high_school_mathematics", "high_school_microeconomics"),
    *("high_school_physics", "high_school_psychology", "high_school_statistics", "high_school_us_history"),
    *("high_school_world_history", "human_aging", "human_sexuality", "international_law", "jurisprudence"),
    *("logical_fallacies", "machine_learning", "management", "marketing", "medical_genetics"),
    *("miscellaneous", "moral_disputes", "moral_scenarios", "nutrition", "philosophy", "prehistory"),
    *("professional_accounting", "professional_law", "professional_medicine", "professional_psychology"),
    *("public_relations", "security_studies", "sociology", "us_foreign_policy", "virology"),
    "world_religions",
)


def key(question: dict[str, Any]) -> str | int | None:
    """The right option, by its place from 0 or its letter; None for a question that is left out."""
    kind = question["error_type"]
    if kind == "ok":
        return int(question["answer"])
    named = str(question["correct_answer"] or "").strip().upper()
    if kind != "wrong_groundtruth" or len(named) != 1:
        return None
    return named if named in "ABCD" else int(named) if named in "0123" else None


def rows(*files: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for subject, questions in zip(SUBJECTS, files, strict=True):
        for one in questions:
            right = key(one)
            if right is not None:
                yield choice_row(one["question"], one["choices"], right, subject=subject)


FILES = tuple(f"{subject}/data-00000-of-00001.arrow" for subject in SUBJECTS)
environment = replace(
    mmlu.environment,
    description="Questions of MMLU that people have checked again (MMLU-Redux 2.0).",
    data_license="CC-BY-4.0",
    datasets=(
        DatasetSource(
            repo_id="edinburgh-dawg/mmlu-redux-2.0",
            file=FILES[0],
            further_files=FILES[1:],
            split="benchmark",
            license="CC-BY-4.0",
            rows=rows,
        ),
    ),
)
