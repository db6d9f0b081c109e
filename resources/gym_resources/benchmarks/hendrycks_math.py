r"""5,000 problems of competitions in mathematics, of seven subjects and five levels (all of MATH's test set).

Prompt, verifier and score are those of `math500`, whose problems are among these. The expected answer is what
the published solution puts into its last ``\boxed{}`` (or ``\fbox{}``; braces may be missing around a single
number), as its authors read it.
Source: Hendrycks et al. 2021, arXiv:2103.03874, MIT, in the copy of EleutherAI; the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from gym_runtime import DatasetSource
from msgspec.structs import replace

from gym_resources.benchmarks import math500
from gym_resources.extract.braces import closing_brace

SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
BOXES = (r"\boxed", r"\fbox")


def answer(solution: str) -> str:
    r"""What stands in the last box of a published solution.

    Raises:
        ValueError: it has none.

    >>> answer(r"So $x=\boxed{\frac{1}{2}}$."), answer(r"Hence $\boxed 7$.")
    ('\\frac{1}{2}', '7')
    """
    for box in BOXES:
        start = solution.rfind(box)
        if start < 0:
            continue
        rest = solution[start + len(box) :].lstrip()
        if not rest.startswith("{"):
            return rest.partition("$")[0].strip()
        end = closing_brace(rest, 1)
        if end >= 0:
            return rest[1:end].strip()
    raise ValueError("the solution has no boxed answer")


def rows(*subjects: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in chain(*subjects):
        yield {
            "problem": one["problem"],
            "expected_answer": answer(one["solution"]),
            "level": one["level"].lower(),
            "subject": one["type"],
        }


environment = replace(
    math500.environment,
    description="Problems of competitions in mathematics: the whole test set of MATH, 5,000 problems.",
    datasets=(
        DatasetSource(
            repo_id="EleutherAI/hendrycks_math",
            file=f"{SUBJECTS[0]}/test-00000-of-00001.parquet",
            further_files=tuple(f"{subject}/test-00000-of-00001.parquet" for subject in SUBJECTS[1:]),
            split="benchmark",
            license="MIT",
            rows=rows,
        ),
    ),
    agent_refs=(),
)
