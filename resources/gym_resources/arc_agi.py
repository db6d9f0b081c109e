r"""Abstraction and reasoning: find the rule behind pairs of colour grids and apply it to one more grid.

The answer is the first grid in a ``\boxed{}``: a list of lists of digits, commas and spaces, with nothing
before or behind it in the braces. If no box holds one, it is the first such grid that stands anywhere in
what the model said, not counting those within a further list. A grid that is not JSON, that is empty or
whose first row is empty is passed over. The reward is 1 if the answer is the expected grid, in every cell.

Rows and rewards as its namesake in NeMo Gym. Source: the Abstraction and Reasoning Corpus
(github.com/fchollet/ARC-AGI, Apache-2.0), whose tasks it is meant for; the example rows are our own.
"""

from __future__ import annotations

import re

from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract import jsons

Grid = list[list[int]]

_BOX = r"\\boxed\{(%s)\}"
_ANYWHERE = r"(?<!\[)(%s)(?!\s*+\])"


def _grid_in(place: str, first_row: str, row: str) -> re.Pattern[str]:
    return re.compile(place % rf"\[\s*+{first_row}(?:\s*+,\s*+{row})*+\s*+\]", re.ASCII)


_ROW = r"\[[\d,\s]*+\]"
_CELLS = r"\s*+(?:0|[1-9]\d*+)(?:\s*+,\s*+(?:0|[1-9]\d*+))*+\s*+"
_SOME_BOX = _grid_in(_BOX, _ROW, _ROW)
# The rows as JSON has them and the first not empty: so no reply makes `grid` decode thousands of candidates.
_FULL_BOX, _FULL_ANYWHERE = (
    _grid_in(place, rf"\[{_CELLS}\]", rf"\[(?:{_CELLS}|\s*+)\]") for place in (_BOX, _ANYWHERE)
)


class ArcTask(Task):
    expected_output: list[list[int]]


def grid(text: str) -> Grid | None:
    """The grid that a text answers with, or None."""
    full = _FULL_BOX if _SOME_BOX.search(text) else _FULL_ANYWHERE
    decoded = (jsons.decode(match[1], Grid) for match in full.finditer(text))
    return next((found for found in decoded if found), None)


async def verify(task: ArcTask, reply: Reply) -> Verdict:
    answer = grid(reply.lines_text)
    return Verdict(float(answer == task.expected_output), fields={"extracted_answer": answer})


environment = Environment(
    resource=verify,
    description="Find the rule behind pairs of grids and apply it to another (ARC-AGI).",
    domain="knowledge",
    data_license="Apache-2.0",
)
