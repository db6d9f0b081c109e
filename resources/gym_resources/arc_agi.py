r"""Abstraction and reasoning: find the rule behind pairs of colour grids and apply it to one more grid.

The answer is the first grid in a ``\boxed{}``: a list of lists of digits, commas and spaces, with nothing
before or behind it in the braces. If no box holds one, it is the first such grid anywhere in the model's
text; a grid within another list does not count. A grid that is not JSON, that is empty or whose first row is
empty is skipped. The reward is 1 if the answer is the expected grid, in every cell.

With ``strict``, which NeMo Gym lacks, every box of the text must hold this grid; without a box there must be
no other grid. Otherwise the right grid before another one, which is the model's last word, is paid.

Rows and rewards are those of NeMo Gym's environment of this name. Source: the Abstraction and Reasoning
Corpus (github.com/fchollet/ARC-AGI, Apache-2.0), whose tasks it is meant for; the example rows are our own.
"""

from __future__ import annotations

import re

from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract import jsons
from gym_resources.extract.boxed import MARK

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
_IN_BOX = _grid_in(r"\s*+(%s)\s*+\}", rf"\[{_CELLS}\]", rf"\[(?:{_CELLS}|\s*+)\]")


class ArcTask(Task, kw_only=True):
    expected_output: list[list[int]]
    strict: bool = False


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


def only_grid(text: str) -> bool:
    """Whether each box of a text holds the same grid; without a box, whether there is no other grid."""
    boxes = text.split(MARK)[1:]
    found = map(_IN_BOX.match, boxes) if boxes else _FULL_ANYWHERE.finditer(text)
    grids = {match and "".join(match[1].split()) for match in found}
    return len(grids) == 1 and None not in grids


async def verify(task: ArcTask, reply: Reply) -> Verdict:
    text = reply.lines_text
    answer = grid(text)
    right = answer == task.expected_output and (not task.strict or only_grid(text))
    fields = {
        "extracted_answer": answer,
        "predicted_output": answer,
        "extraction_successful": answer is not None,
    }
    return Verdict(float(right), fields=fields)


environment = Environment(
    resource=verify,
    description="Find the rule behind pairs of grids and apply it to another (ARC-AGI).",
    domain="knowledge",
    data_license="Apache-2.0",
)
