"""Look at a screenshot and point to the element that is asked for.

The answer is the last ``<point>(x, y)</point>`` in the model's text, in thousandths of the image's width
and height; the parentheses may be missing. ``expected_answer`` is the right point as ``x,y`` in fractions of
both, such as ``0.664,0.841``. The reward falls in proportion to the distance of the two: 1 at the right
point, 0 from ``max_dist`` on; with ``--set grading=within`` it is 1 up to ``max_dist`` and 0 beyond it.

Rows are those of NeMo Gym's environment of this name, which has no published description. Its rows say the
form of the answer, its units and ``max_dist``; that the reward falls up to there is our reading of that name.
Source: the rows of NeMo Gym's ``gui_coordinate``; the example rows, with their images, are our own.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal

from gym_runtime import Environment, Reply, Task, Verdict
from msgspec import Meta

from gym_resources.extract.patterns import bounded

Point = tuple[float, float]

THOUSAND = 1000.0
_NUMBER = r"-?\d{1,9}(?:\.\d{1,9})?"
_PAIR = rf"\s*+({_NUMBER})\s*+,\s*+({_NUMBER})\s*+"
_EXPECTED = re.compile(_PAIR, re.ASCII)
_POINT = re.compile(rf"<point>\s*+(?:\({_PAIR}\)\s*+|{_PAIR})</point>", re.ASCII)


class PointTask(Task):
    """A screenshot, and the point that is asked for.

    Attributes:
        expected_answer: ``x,y`` in fractions of the image's width and height.
        max_dist: the distance, in these fractions, from which on the reward is 0.
        grading: the reward falls in proportion to the distance, or it is 1 ``within`` ``max_dist``.
    """

    expected_answer: str
    max_dist: Annotated[float, Meta(gt=0)] = 0.15
    grading: Literal["linear", "within"] = "linear"

    def __post_init__(self) -> None:
        if _EXPECTED.fullmatch(self.expected_answer) is None:
            raise ValueError(f"expected_answer {self.expected_answer!r:.60}: it must be 'x,y'")

    @property
    def wanted(self) -> Point:
        x, y = self.expected_answer.split(",")
        return float(x), float(y)


def point(text: str) -> Point | None:
    """The last point in a text, as fractions; None without one.

    >>> point("<point>(1, 2)</point>, rather <point>(250, 500.5)</point>")
    (0.25, 0.5005)
    """
    last: re.Match[str] | None = None
    for match in _POINT.finditer(text):
        last = match
    if last is None:
        return None
    x, y = filter(None, last.groups())
    return float(x) / THOUSAND, float(y) / THOUSAND


async def verify(task: PointTask, reply: Reply) -> Verdict:
    answer = await bounded(point, reply.joined_text)
    if answer is None:
        return Verdict(0.0, fields={"extracted_answer": None, "distance": None})
    distance = math.dist(answer, task.wanted)
    near = max(0.0, 1.0 - distance / task.max_dist)
    reward = near if task.grading == "linear" else float(distance <= task.max_dist)
    return Verdict(reward, fields={"extracted_answer": answer, "distance": distance})


environment = Environment(
    resource=verify,
    description="Point to an element of a screenshot.",
    agent="single_turn",
    data_license="Apache-2.0 (own rows)",
)
