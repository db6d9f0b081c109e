r"""Abstraction and reasoning: find the rule behind pairs of colour grids and apply it to one more grid.

The answer is the first grid in a ``\boxed{}``: a list of lists of digits, commas and spaces, with nothing
before or behind it in the braces. If no box holds one, it is the first such grid anywhere in the model's
text; a grid within another list does not count. A grid that is not JSON, that is empty or whose first row is
empty is skipped. The reward is 1 if the answer is the expected grid, in every cell.

Rows and rewards are those of NeMo Gym's environment of this name. Source: the Abstraction and Reasoning
Corpus (github.com/fchollet/ARC-AGI, Apache-2.0), whose tasks it is meant for; the example rows are our own.
"""

from __future__ import annotations

import re

from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract import jsons

LONGEST = 100_000
"""The most characters of a grid that is read; the largest of the corpus has 30 rows of 30 cells."""
Grid = list[list[int]]

_BOX = r"\\boxed\{(%s)\}"
_ANYWHERE = r"(?<!\[)(%s)(?!\s*+\])"


def _grid_in(place: str, first_row: str, row: str) -> re.Pattern[str]:
    return re.compile(place % rf"\[\s*+{first_row}(?:\s*+,\s*+{row})*+\s*+\]", re.ASCII)


_ROW = r"\[[\d,\s]*+\]"
_CELLS = r"\s*+(?:0|[1-9]\d*+)(?:\s*+,\s*+(?:0|[1-9]\d*+))*+\s*+"
_SOME_BOX = _grid_in(_BOX, _ROW, _ROW)
# Matches only rows in JSON's form with a first row that is not empty, so that no reply makes `grid` decode
# thousands of candidates.
_FULL_BOX, _FULL_ANYWHERE = (
    _grid_in(place, rf"\[{_CELLS}\]", rf"\[(?:{_CELLS}|\s*+)\]") for place in (_BOX, _ANYWHERE)
)


class ArcTask(Task):
    expected_output: list[list[int]]


def grid(text: str) -> Grid | None:
    """The grid that a text answers with; None without one, or if it is far larger than any expected grid."""
    full = _FULL_BOX if _SOME_BOX.search(text) else _FULL_ANYWHERE
    for match in full.finditer(text):
        written = "".join(match[1].split())
        if len(written) > LONGEST:
            return None
        found = jsons.decode(written, Grid)
        if found:
            return found
    return None


async def verify(task: ArcTask, reply: Reply) -> Verdict:
    answer = grid(reply.lines_text)
    fields = {
        "extracted_answer": answer,
        "predicted_output": answer,
        "extraction_successful": answer is not None,
    }
    return Verdict(float(answer == task.expected_output), fields=fields)


environment = Environment(
    resource=verify,
    description="Find the rule behind pairs of grids and apply it to another (ARC-AGI).",
    domain="knowledge",
    data_license="Apache-2.0",
)
