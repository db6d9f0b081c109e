r"""Multiple-choice questions, answered with an option's letter or wording.

Which option the model's last message names is found in three steps:

1. the expressions in the row's ``template_metadata.output_regex`` (one, or several in order), in either case,
   each by its last match; what it captures is an option's letter, or an option's whole wording, in either
   case; what is no expression is passed over;
2. if that names no option, the row's ``grading_mode``:
   ``strict_single_letter_boxed`` takes the one capital letter in the last ``\boxed{}``, or the letter that
   labels its content (``B: Iron``, ``B) Iron``), with or without a ``\text{}`` around it;
   ``lenient_boxed`` takes otherwise the only option whose wording is part of the last box;
   ``lenient_answer_colon`` takes what stands behind the first ``Answer:``, a letter or a wording;
   ``lenient_answer_colon_md`` goes through all ``Answer:`` from the last to the first, whatever their
   markup, and knows Arabic, Bengali and full-width letters;
3. the option is compared with ``expected_answer``.

Fields, modes and rewards as its namesake in NeMo Gym. Unlike there, an expression is searched for in a
process under a time limit (it could stop a worker for ever).
Source: the rule of NeMo Gym's ``mcqa``; the rows are our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract import letters
from gym_resources.extract.templates import Template

GradingMode = Literal[
    "strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"
]
GRADING: dict[GradingMode, Callable[[str, letters.Options], str | None]] = {
    "strict_single_letter_boxed": letters.in_box,
    "lenient_boxed": letters.in_box_or_worded,
    "lenient_answer_colon": letters.after_first_answer,
    "lenient_answer_colon_md": letters.after_last_answer,
}


class McqaTask(Task):
    options: list[dict[str, str]]
    expected_answer: str
    grading_mode: GradingMode = "strict_single_letter_boxed"
    template_metadata: Template = Template()


async def verify(task: McqaTask, reply: Reply) -> Verdict:
    options = {letter.upper(): wording for option in task.options for letter, wording in option.items()}
    answer = await task.template_metadata.option(reply.text, options)
    answer = answer or GRADING[task.grading_mode](reply.text, options)
    return Verdict(float(answer == task.expected_answer.strip().upper()), fields={"extracted_answer": answer})


environment = Environment(
    resource=verify,
    description="Multiple-choice questions, graded by the option that the answer names.",
    domain="knowledge",
)
