r"""Graduate-level science questions with four options (GPQA Diamond).

The verifier reads the texts of all the model's messages, joined. The answer is what the row's
``template_metadata.output_regex`` finds, as in `mcqa` but for one expression at most. Without one it is the
last capital letter that stands alone in the last ``\boxed{}``, up to its first ``}``, else the letter
behind the last ``Answer:``, in either case, with up to two signs of space or emphasis before it. It is
compared with ``expected_answer``. If the row has options, another letter than theirs is not an answer, and
the search ends there. `mcqa`'s ``grading_mode`` has no effect here, its ``strict`` has.

Rows and rewards are those of NeMo Gym's environment of this name; a row with a list of expressions is
refused.
Source: GPQA (arXiv 2311.12022; the data is CC-BY-4.0 and asks not to be shown in plain text, so the example
rows are our own), graded as in the methodology of Artificial Analysis
(artificialanalysis.ai/methodology/intelligence-benchmarking).
"""

from __future__ import annotations

from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract import letters, templates
from gym_resources.extract.patterns import bounded
from gym_resources.extract.templates import Template


class GpqaTask(Task):
    options: tuple[dict[str, str | None], ...] = ()
    expected_answer: str = ""
    template_metadata: Template = Template()
    strict: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.template_metadata.output_regex, list):
            raise ValueError("'template_metadata.output_regex' is a list; gpqa_diamond takes one expression")


def chosen(text: str, expressions: list[str], options: letters.Options) -> str | None:
    """The letter of a text's answer."""
    answer = templates.matched(text, expressions, options) or letters.in_box_or_after_answer(text)
    return answer if not options or answer in options else None


async def verify(task: GpqaTask, reply: Reply) -> Verdict:
    expressions = task.template_metadata.expressions
    options, expected = letters.lettered(task.options), task.expected_answer.strip().upper()
    args = (expressions, options)
    answer = await bounded(chosen, reply.joined_text, *args, expressions=expressions)
    right = bool(expected) and answer == expected
    if task.strict and right:
        right = letters.alone(reply.joined_text, expected, options)
    return Verdict(float(right), fields={"extracted_answer": answer})


environment = Environment(
    resource=verify,
    description="Graduate-level multiple-choice questions in physics, chemistry and biology (GPQA Diamond).",
    domain="knowledge",
    data_license="CC-BY-4.0",
)
