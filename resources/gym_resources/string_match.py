r"""Short answers in free text, compared with the expected one as strings.

The row's ``extraction_mode`` says what of the model's text (the texts of all its messages, joined) is the
answer: ``final_answer``, what follows the last ``Final answer:`` or ``Answer:`` in its line, in any case, or
else the last ``\boxed{}``; ``boxed``, the content of the last ``\boxed{}``, without ``\text{}`` around it;
``last_line``, the last line that is not blank; ``full_response``, all of it. The reward is 1 if answer and
``expected_answer`` are the same after Unicode's normal form NFKC, without space around them, with each run of
white space as one blank, and, unless ``case_sensitive`` is set, in any case.

Rows and rewards are those of NeMo Gym's environment of this name, as its README describes them. Marks of
style and punctuation around an answer count. A row with a blank ``expected_answer`` is refused. Source: the
README of NeMo Gym's ``string_match``; the rows are our own.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract.boxed import last_boxed_text
from gym_resources.extract.patterns import bounded

ExtractionMode = Literal["final_answer", "boxed", "last_line", "full_response"]

COMPOSED = 4
"""The most characters that NFKC makes one of."""
_PREFIX = re.compile(r"answer:", re.IGNORECASE)  # also the end of "Final answer:"


class MatchTask(Task):
    """A question with a short answer.

    Attributes:
        extraction_mode: what of the model's text is its answer; by default what follows ``Final answer:`` or
            ``Answer:``, else the last box.
    """

    expected_answer: str
    extraction_mode: ExtractionMode = "final_answer"
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        if not self.expected_answer.strip():
            raise ValueError("'expected_answer' is blank")


def final_answer(text: str) -> str | None:
    """What follows the last prefix in its line; else the last box.

    >>> final_answer("Answer: Mars? Final answer: Saturn")
    'Saturn'
    """
    last: re.Match[str] | None = None
    for match in _PREFIX.finditer(text):
        last = match
    return text[last.end() :].partition("\n")[0].strip() if last else last_boxed_text(text)


def answer(text: str, mode: ExtractionMode) -> str | None:
    """The answer in a text; None without one."""
    match mode:
        case "final_answer":
            found = final_answer(text)
        case "boxed":
            found = last_boxed_text(text)
        case "last_line":
            found = next((line for line in reversed(text.splitlines()) if line.strip()), None)
        case "full_response":
            found = text
    return found.strip() if found else None


def plain(text: str, case_sensitive: bool = False) -> str:
    """A text as it is compared.

    >>> plain(" The  ﬁsh "), plain("ß") == plain("SS")
    ('the fish', True)
    """
    normal = " ".join(unicodedata.normalize("NFKC", text).split())
    return normal if case_sensitive else normal.casefold()


def same(found: str, expected: str, case_sensitive: bool = False) -> bool:
    """Whether two texts are equal. A text that is far longer is not, and is not normalised."""
    wanted, short = plain(expected, case_sensitive), " ".join(found.split())
    return len(short) <= COMPOSED * len(wanted) + COMPOSED and plain(short, case_sensitive) == wanted


async def verify(task: MatchTask, reply: Reply) -> Verdict:
    found = await bounded(answer, reply.joined_text, task.extraction_mode)
    right = found is not None and same(found, task.expected_answer, task.case_sensitive)
    return Verdict(float(right), fields={"extracted_answer": found})


environment = Environment(
    resource=verify,
    description="Short answers in free text, compared as strings.",
    domain="knowledge",
    agent="single_turn",
    data_license="Apache-2.0 (own rows)",
)
