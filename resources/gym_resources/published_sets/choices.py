"""Rows of multiple-choice questions for the verifier of `mcqa`, which reads the letter after ``Answer:``.

The prompt for four options is that of OpenAI's simple-evals (`gym_resources.benchmarks.gpqa`), the one for up
to 26 options says the same of however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from gym_runtime import Reply, Verdict

from gym_resources import mcqa

PROMPT = """\
Answer the following multiple choice question. The last line of your response should be of the following \
format: 'Answer: $LETTER' (without quotes) where LETTER is the letter of one of the options. Think step by \
step before answering.

{question}

{options_text}"""


ASKED_FOR_LETTER = """\
Answer the following multiple choice question. The last line of your response should be in the following \
format: 'Answer: A/B/C/D' (e.g. 'Answer: A').

{question}

{options_text}"""
"""The prompt of Artificial Analysis, which NeMo Gym uses, for four options."""


class ChoiceTask(mcqa.McqaTask):
    """A question whose letter stands behind the last ``Answer:``, unless the row says otherwise."""

    grading_mode: mcqa.GradingMode = "lenient_answer_colon_md"


async def verify(task: ChoiceTask, reply: Reply) -> Verdict:
    return await mcqa.verify(task, reply)


def choice_row(question: str, options: Sequence[str], answer: str | int, **about: Any) -> dict[str, Any]:
    """A row; ``answer`` is the right option's letter, or its place from 0.

    Raises:
        ValueError: there is no such option.
    """
    lettered = dict(zip(ascii_uppercase, options, strict=False))
    letter = ascii_uppercase[answer] if isinstance(answer, int) else answer.strip().upper()
    if letter not in lettered:
        raise ValueError(f"the answer {answer!r} is not one of the {len(options)} options")
    return {
        "question": question,
        "options_text": "\n".join(f"{name}) {wording}" for name, wording in lettered.items()),
        "options": [{name: wording} for name, wording in lettered.items()],
        "expected_answer": letter,
        "grading_mode": "lenient_answer_colon_md",
        **about,
    }
