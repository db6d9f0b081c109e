r"""Abstraction and reasoning: find the rule behind pairs of colour grids and apply it to one more grid.

The answer is the first ``\boxed{}`` that holds a grid (a list of rows of numbers, as JSON), else the first
grid that stands anywhere in what the model said. The reward is 1 if it is the expected one, in every cell.

Rows and rewards as its namesake in NeMo Gym. Source: the Abstraction and Reasoning Corpus
(github.com/fchollet/ARC-AGI, Apache-2.0), whose tasks it is meant for; the example rows are our own.
"""

from __future__ import annotations

import re
from itertools import chain

from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract import jsons
from gym_resources.extract.boxed import boxed

Grid = list[list[int | float]]

_GRID = re.compile(r"\[\s*\[[^\[\]]*\](?:\s*,\s*\[[^\[\]]*\])*\s*\]")


class ArcTask(Task):
    expected_output: list[list[int]]


def grid(text: str) -> Grid | None:
    """The grid that a text answers with, or None."""
    written = chain(boxed(text), (match[0] for match in _GRID.finditer(text)))
    return next((found for found in (jsons.decode(piece, Grid) for piece in written) if found), None)


async def verify(task: ArcTask, reply: Reply) -> Verdict:
    answer = grid(reply.all_text)
    return Verdict(float(answer == task.expected_output), fields={"extracted_answer": answer})


environment = Environment(
    resource=verify,
    description="Find the rule behind pairs of grids and apply it to another (ARC-AGI).",
    domain="knowledge",
    data_license="Apache-2.0",
)
