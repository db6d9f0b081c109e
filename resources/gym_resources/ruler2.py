r"""Needles in long texts and questions about them, of RULER's second version.

``expected_answer`` lists what a reply must name, in any case. What it names exactly counts 1; otherwise one
less the reply's rate of wrong words (the words to change, over those expected), at least 0. ``match_type``
says how these are put together: ``all``, the mean; ``part``, the best, headings such as ``Document 7:`` left
out; ``2steps``, the mean in the reply's last paragraph alone. Of a row whose ``eval_type`` is
``multichoice``, the expected answer is a letter: that in the last ``\\boxed{}`` or behind the last
``Answer:``, else the last one of the last line. The score is the mean, and the same by task. Long replies are
compared in a process that can be killed.

Rows and rewards are those of NeMo Gym's environment of this name; the example rows are our own.
"""

from __future__ import annotations

import re
from functools import partial
from statistics import fmean
from typing import Literal

from gym_runtime import Benchmark, Environment, Reply, Task, Verdict

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.extract.letters import in_box_or_after_answer
from gym_resources.extract.patterns import bounded
from gym_resources.extract.text_similarity import right_words
from gym_resources.judging.labels import counted

SHORT_CHARS = 500
_CONTROL = re.compile(r"[\x00-\x1f]")
_HEADING = re.compile(r"Document \d+:\s*", re.IGNORECASE)
_ALONE = re.compile(r"\b[A-Z]\b")


class Ruler2Task(Task):
    expected_answer: str | list[str]
    eval_type: Literal["ruler2", "multichoice"] = "ruler2"
    match_type: Literal["all", "part", "2steps"] = "all"
    task: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.expected_answer, str):
            self.expected_answer = [self.expected_answer]
        if not self.expected_answer or not all(one.strip() for one in self.expected_answer):
            raise ValueError("'expected_answer' names nothing to find, or has a blank text")


async def verify(task: Ruler2Task, reply: Reply) -> Verdict:
    if task.eval_type == "multichoice":
        alone = _ALONE.findall(counted(reply.joined_text))
        letter = in_box_or_after_answer(reply.joined_text) or next(reversed(alone), None)
        return Verdict(float([letter] == task.expected_answer), fields={"extracted_answer": letter})
    said = _CONTROL.sub("\n", reply.joined_text).strip()
    if task.match_type == "2steps":
        said = said.split("\n\n")[-1]
    return Verdict(await bounded(named, said, task.expected_answer, task.match_type, long=SHORT_CHARS))


def named(text: str, expected: list[str], match_type: str) -> float:
    """How much of what is expected a text names, 0 to 1."""
    if match_type == "part":
        text = _HEADING.sub("", text)
        expected = [_HEADING.sub("", one) or one for one in expected]
    text = text.casefold()
    found = [1.0 if one in text else right_words(text, one) for one in map(str.casefold, expected)]
    return max(found) if match_type == "part" else fmean(found)


environment = Environment(
    resource=verify,
    description="Needles in long texts and questions about them (RULER 2).",
    domain="long_context",
    reads_input=False,
    agent="single_turn",
    benchmark=Benchmark(score=partial(by_category, field="task"), fields=("task",)),
    data_license="Apache-2.0 (own rows)",
)
