"""Programming problems of contests in German, Spanish, French and Japanese: LiveCodeBench, translated.

The translations name their problems by ``task_id``; the tests are those of `livecodebench`, which `prepare`
fetches too. A translation whose problem is not among them is refused. Verifier and repeats are those of
`livecodebench`; the score is the mean over a problem's rollouts, and the same by language. The names of the
files are those under which the hub's library stores configurations and splits. Source: NVIDIA's translations
(nvidia/Nemotron-Multilinugual-Eval-LCB) of Jain et al. 2024, arXiv:2403.07974; the problems belong to the
contests' organizers, and the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources.benchmarks import livecodebench
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.published_sets.languages import NVIDIA

FILES = ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl")
INSTRUCTIONS = {
    "de": "Schreibe ein Python-Programm, das die Aufgabe löst, in einen Block von ```python.",
    "es": "Escribe un programa de Python que resuelva el problema en un bloque de ```python.",
    "fr": "Écris un programme Python qui résout le problème dans un bloc ```python.",
    "ja": "問題を解く Python プログラムを ```python のブロックに書いてください。",
}


def rows(*files: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of the translations, which come first, and of the problems."""
    wanted = [(language, one) for language, records in zip(NVIDIA, files, strict=False) for one in records]
    tasks = {one["task_id"] for _, one in wanted}
    problems = (one for records in files[len(NVIDIA) :] for one in records if one["question_id"] in tasks)
    known = {row["question_id"]: row for row in livecodebench.rows(problems, first="0000", before="9999")}
    for language, one in wanted:
        if one["task_id"] not in known:
            raise ValueError(f"the problem {one['task_id']} is in none of LiveCodeBench's files")
        instruction = INSTRUCTIONS[language]
        yield known[one["task_id"]] | {
            "question": one["question"],
            "instruction": instruction,
            "language": language,
        }


environment = replace(
    livecodebench.environment,
    description="Programming problems of contests in four languages, run on hidden tests (LiveCodeBench).",
    benchmark=Benchmark(
        prompt="{instruction}\n\n{question}\n\n{answer_format}",
        score=partial(by_category, field="language"),
        fields=("language",),
    ),
    datasets=tuple(
        DatasetSource(
            repo_id="nvidia/Nemotron-Multilinugual-Eval-LCB",
            file=f"{version}/{NVIDIA[0]}-00000-of-00001.parquet",
            further_files=tuple(f"{version}/{one}-00000-of-00001.parquet" for one in NVIDIA[1:]),
            further_sources=tuple(
                DatasetSource(repo_id="livecodebench/code_generation_lite", file=file, license="CC")
                for file in FILES
            ),
            split="benchmark",
            license="CC",
            name=name,
            rows=rows,
        )
        for name, version in (("", "v6"), ("v5", "v5"))
    ),
)
