"""Grade a solution of an olympiad problem: correct, almost, partial or incorrect (IMO-GradingBench).

The grade is the last of these words in the last line that has a letter, marks around it aside; the reward is
1 if it is ``expected_answer``. Other lines do not count; that is our reading. With ``strict`` that line must
hold the grade alone, such as ``**Grade: almost**``, and no denial or second grade. The score is the share
that is right, and how far off the grades are on average (0 to 3).

Rows and rewards are those of NeMo Gym's environment of this name. Source: Luong et al. 2025,
arXiv:2511.01846 (CC-BY-4.0); the example rows are our own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from gym_runtime import Benchmark, Environment, Reply, ScoredRollout, Task, Verdict

from gym_resources.benchmarks.scoring.shares import accuracy
from gym_resources.judging.labels import counted

Grade = Literal["incorrect", "partial", "almost", "correct"]
GRADES: tuple[Grade, ...] = ("incorrect", "partial", "almost", "correct")
_GRADE = re.compile(r"\b(incorrect|partial|almost|correct)\b", re.IGNORECASE)
# Nothing is tried again, so a line of a megabyte is read in milliseconds.
_ALONE = re.compile(
    r"[\W_]*+(?:the )?(?:final )?(?:grade|answer)?(?: ?is\b)?[\W_]*+[a-z]++[\W_]*+", re.IGNORECASE
)


class GradingTask(Task, kw_only=True):
    expected_answer: Grade
    strict: bool = False


def grade(text: str) -> str | None:
    """The grade that a text ends with.

    >>> grade("It is correct.\\n\\n**Almost**"), grade("correct\\nOr not?")
    ('almost', None)
    """
    found = _GRADE.findall(counted(text))
    return found[-1].lower() if found else None


async def verify(task: GradingTask, reply: Reply) -> Verdict:
    found = grade(reply.joined_text)
    if task.strict and not _ALONE.fullmatch(counted(reply.joined_text)):
        found = None
    off = abs(GRADES.index(found) - GRADES.index(task.expected_answer)) if found else None  # pyright: ignore[reportArgumentType]
    return Verdict(float(found == task.expected_answer), fields={"extracted_answer": found, "grade_off": off})


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """Accuracy, and the mean distance of the grades from the right ones; a reply without one is 3 off."""
    off = [one.fields["grade_off"] for one in rollouts]
    return {**accuracy(rollouts), "mean distance (grades)": fmean(3 if one is None else one for one in off)}


environment = Environment(
    resource=verify,
    description="Grade solutions of olympiad problems (IMO-GradingBench).",
    domain="math",
    agent="single_turn",
    benchmark=Benchmark(score=score, fields=("grade_off",)),
    data_license="CC-BY-4.0",
)
