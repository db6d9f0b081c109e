"""Stories of blocks and shapes with a question on where they are: choose the object (SpartQA).

The answer is what follows the last ``Final answer:`` in its line. The reward is 1 if it is the row's
``target``, whatever its case, its spaces, and marks around it. An answer that is no candidate (one of
``options``, ``both of them``, ``none of them``) is wrong. The score is the share that is right.

Rows and rewards are those of NeMo Gym's environment of this name; that the last such line counts is our
reading. Source: Mirzaee et al. 2021, arXiv:2104.05832 (CC-BY-SA-4.0); the example rows are our own.
"""

from __future__ import annotations

import re

from gym_runtime import Benchmark, Environment, Reply, Task, Verdict

from gym_resources.benchmarks.scoring.shares import accuracy

_FINAL = re.compile(r"final answer[*_]{0,2}:([^\n]*)", re.IGNORECASE)
_AROUND = " \t\r*_`\"'.“”"


class SpatialTask(Task):
    target: str
    options: list[str] = []  # noqa: RUF012 - a msgspec field, copied for each

    def __post_init__(self) -> None:
        if not plain(self.target):
            raise ValueError("'target' is blank")


def plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(_AROUND)


def stated(text: str) -> str | None:
    """What follows the last mark of an answer.

    >>> stated("Final answer: a\\n**Final answer:** The Big Circle.")
    'the big circle'
    """
    found = _FINAL.findall(text)
    return plain(found[-1]) if found else None


async def verify(task: SpatialTask, reply: Reply) -> Verdict:
    answer = stated(reply.joined_text)
    return Verdict(float(answer == plain(task.target)), fields={"extracted_answer": answer})


environment = Environment(
    resource=verify,
    description="Where objects of a story are, answered with one of the candidates (SpartQA).",
    domain="other",
    reads_input=False,
    agent="single_turn",
    benchmark=Benchmark(score=accuracy),
    data_license="CC-BY-SA-4.0",
)
