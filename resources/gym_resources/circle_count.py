r"""Look at an image of coloured circles and count those of one colour.

The answer is the whole number in the last ``\boxed{}`` of the model's text. The reward is 1 if it is the
number of ``circles`` of the row's ``target_color``, which may be 0. The image is an ``input_image`` part of
the row's input and goes to the model unchanged.

Rows and rewards are those of NeMo Gym's environment of this name. Its README speaks of a tool ``count(n)``;
its rows ask for a box and offer no tool, so only the box counts here. Source: the rule of NeMo Gym's
``circle_count``; the rows, with their images, are our own.
"""

from __future__ import annotations

import re

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract.boxed import last_boxed

_NUMBER = re.compile(r"\s*+(\d{1,30}+)\s*+", re.ASCII)


class Coloured(msgspec.Struct):
    """What counts of a circle."""

    color: str


class CountTask(Task):
    """An image of circles, and the colour of those to count."""

    circles: list[Coloured]
    target_color: str

    @property
    def count(self) -> int:
        return sum(circle.color == self.target_color for circle in self.circles)


def number(text: str) -> int | None:
    r"""The whole number in the last box; None without one.

    >>> number(r"\boxed{2}, no, \boxed{ 03 }"), number(r"\boxed{three}")
    (3, None)
    """
    found = _NUMBER.fullmatch(last_boxed(text) or "")
    return int(found[1]) if found else None


async def verify(task: CountTask, reply: Reply) -> Verdict:
    answer = number(reply.joined_text)
    fields = {"extracted_answer": answer, "expected_count": task.count}
    return Verdict(float(answer == task.count), fields=fields)


environment = Environment(
    resource=verify,
    description="Count the circles of a given colour in an image.",
    domain="games",
    agent="single_turn",
    data_license="Apache-2.0 (own rows)",
)
