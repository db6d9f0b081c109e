"""Judge proposed fixes of a software issue: which of the labelled diffs solves it?

The answer stands in the last ``<solution>`` tag. With ``grading_mode`` ``strict``, the default, the tag must
hold one option's letter and nothing else; with ``lenient`` it may hold other words too, and the first letter
of an option that stands alone among them counts (``Fix B, not A``): so ``B, A`` and ``not B`` name B. Of
the 5 example rows 2 are ``lenient``, and pay for such tags. With ``strict``, which NeMo Gym lacks, the tag of
a ``lenient`` row holds three words at most, no other option, and no *not* or *or*. The answer is compared
with ``expected_answer``.

Rows and rewards are those of NeMo Gym's environment of this name. Source: the rule of NeMo Gym's
``swerl_llm_judge``, whose rows are made from SWE-Gym (github.com/SWE-Gym/SWE-Gym, MIT); the example rows are
our own.
"""

from __future__ import annotations

from typing import Literal

from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract import letters
from gym_resources.extract.tagged import last_tagged

FEW = 3
"""Words of a tag, by the strict rule."""


class SwerlTask(Task):
    options: list[dict[str, str]]
    expected_answer: str
    grading_mode: Literal["strict", "lenient"] | None = None
    strict: bool = False


async def verify(task: SwerlTask, reply: Reply) -> Verdict:
    options = {letter.upper(): diff for option in task.options for letter, diff in option.items()}
    tagged = last_tagged(reply.text, "solution") or ""
    answer = tagged if tagged in options else None
    if task.grading_mode == "lenient":
        answer = letters.first_letter(tagged, options)
        if task.strict and answer and not (len(tagged.split()) <= FEW and letters.alone(tagged, answer, {})):
            answer = None
    return Verdict(float(answer == task.expected_answer.strip().upper()), fields={"extracted_answer": answer})


environment = Environment(
    resource=verify,
    description="Choose the right one of several proposed patches to a software issue.",
    domain="coding",
    data_license="MIT",
)
