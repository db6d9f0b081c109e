r"""Needles in long texts and questions about them, of RULER's second version.

``expected_answer`` lists what a reply must name, in any case. ``match_type`` says how: ``all``, the reward is
the share that occurs; ``part``, it is 1 if one occurs. That is our reading: ``2steps``, which falls back to a
rate of wrong words that is not described, is refused. Of a row whose ``eval_type`` is ``multichoice``, the
expected answer is a letter: that in the last ``\boxed{}`` or behind the last ``Answer:``, else the last one
of the last line. The score is the mean, and the same by task.

Rows are those of NeMo Gym's environment of this name; the example rows are our own.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Literal

from gym_runtime import Benchmark, Environment, Reply, Task, Verdict

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.extract.letters import in_box_or_after_answer
from gym_resources.judging.labels import counted

_ALONE = re.compile(r"\b[A-Z]\b")


class Ruler2Task(Task):
    expected_answer: str | list[str]
    eval_type: Literal["ruler2", "multichoice"] = "ruler2"
    match_type: str = "all"
    task: str = ""

    def __post_init__(self) -> None:
        if self.match_type not in ("all", "part"):
            raise ValueError(f"'match_type' is {self.match_type[:40]!r}; only all and part are judged here")
        if isinstance(self.expected_answer, str):
            self.expected_answer = [self.expected_answer]
        if not any(one.strip() for one in self.expected_answer):
            raise ValueError("'expected_answer' names nothing to find")


async def verify(task: Ruler2Task, reply: Reply) -> Verdict:
    if task.eval_type == "multichoice":
        alone = _ALONE.findall(counted(reply.joined_text))
        letter = in_box_or_after_answer(reply.joined_text) or next(reversed(alone), None)
        return Verdict(float([letter] == task.expected_answer), fields={"extracted_answer": letter})
    said = reply.joined_text.casefold()
    found = [one.casefold() in said for one in task.expected_answer]
    return Verdict(float(any(found)) if task.match_type == "part" else sum(found) / len(found))


environment = Environment(
    resource=verify,
    description="Needles in long texts and questions about them (RULER 2).",
    domain="long_context",
    reads_input=False,
    agent="single_turn",
    benchmark=Benchmark(score=partial(by_category, field="task"), fields=("task",)),
    data_license="Apache-2.0 (own rows)",
)
