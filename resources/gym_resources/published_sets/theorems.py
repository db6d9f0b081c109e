"""Theorems of Lean 4 that are published as JSON lines, or as the files of a repository, as rows.

The prompt is our own. A statement that ends with a proof that is missing (``sorry``) loses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gym_runtime import ScoredRollout

from gym_resources.benchmarks.scoring.shares import accuracy, by_task

PROMPT = """\
Complete this Lean 4 program:

```lean4
{header}{informal_prefix}{formal_statement}  sorry
```

Think about the proof first. Then write the complete theorem as one block that begins with ```lean4."""
HEADER = (
    "import Mathlib\nimport Aesop\n\nset_option maxHeartbeats 400000\n\n"
    "open BigOperators Real Nat Topology Rat\n\n"
)
_SOLUTION = re.compile(r"(?P<head>^[^\n]*_solution\b.*?:=\s*)sorry\n(?P<answer>(?:--[^\n]*\n)+)", re.M | re.S)
_THEOREM = re.compile(r"^theorem\s+(?P<name>\S+)", re.M)


def statement(text: str) -> str:
    """A statement that ends with ``:= by`` and a line's end, whatever stood there for a proof.

    >>> statement("theorem a : 1 = 1 := by sorry"), statement("theorem a : 1 = 1 :=\\nsorry")
    ('theorem a : 1 = 1 := by\\n', 'theorem a : 1 = 1 := by\\n')
    """
    bare = text.rstrip()
    bare = bare[: -len("sorry")].rstrip() if bare.endswith("sorry") else bare
    bare = bare.removesuffix("by").rstrip() if bare.endswith((" by", "\nby")) else bare
    return f"{bare.removesuffix(':=').rstrip()} := by\n"


def rows(theorems: Iterator[dict[str, Any]], split: str = "") -> Iterator[dict[str, Any]]:
    """The rows of JSON lines with ``name``, ``formal_statement`` and perhaps ``header`` and the statement in
    words; with ``split``, of this split's records only.
    """
    for one in theorems:
        if split and one.get("split", split) != split:
            continue
        yield {
            "header": one.get("header") or HEADER,
            "formal_statement": statement(one["formal_statement"]),
            "informal_prefix": one.get("informal_prefix") or "",
            "name": one["name"],
        }


def file_rows(files: Iterator[dict[str, Any]], folder: str) -> Iterator[dict[str, Any]]:
    """The rows of Lean files below a folder of a repository's archive, in the order of their names.

    What a problem asks for (``…_solution := sorry``) is replaced by the answer in the comment below it.

    Raises:
        ValueError: a file holds no theorem.
    """
    for one in sorted((file for file in files if f"/{folder}/" in file["file"]), key=lambda one: one["file"]):
        text = _SOLUTION.sub(_answered, one["text"])
        found = _THEOREM.search(text)
        if found is None:
            raise ValueError(f"{one['file']} holds no theorem")
        comment = text.rfind("/--", 0, found.start())
        start = comment if comment >= 0 else found.start()
        yield {
            "header": text[:start],
            "formal_statement": statement(text[found.start() :]),
            "informal_prefix": text[start : found.start()],
            "name": found["name"],
        }


def _answered(match: re.Match[str]) -> str:
    lines = [line.removeprefix("--").strip() for line in match["answer"].splitlines()]
    return f"{match['head']}{' '.join(lines)}\n"


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """``pass@k``, the share of theorems that one of k rollouts proves, and the mean over the rollouts."""
    tasks = by_task(rollouts)
    proved = 100 * sum(any(one.reward > 0.5 for one in task) for task in tasks) / len(tasks)
    return {f"pass@{max(map(len, tasks))}": proved, **accuracy(rollouts)}
