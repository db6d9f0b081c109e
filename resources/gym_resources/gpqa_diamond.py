r"""Graduate-level science questions with four options (GPQA Diamond).

The answer is the option that the row's ``template_metadata.output_regex`` finds, as in `mcqa`. Without one it
is the last capital letter that stands alone in the last ``\boxed{}``, else the letter behind the last
``Answer:``, in either case, with up to two signs of space or emphasis before it. It is compared with
``expected_answer``. What a row has of `mcqa`'s ``grading_mode`` changes nothing.

Rows and rewards as its namesake in NeMo Gym. Source: GPQA (arXiv 2311.12022; the data is CC-BY-4.0 and asks
not to be shown in plain text, so the example rows are our own), graded as in the methodology of Artificial
Analysis (artificialanalysis.ai/methodology/intelligence-benchmarking).
"""

from __future__ import annotations

from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract import letters
from gym_resources.extract.templates import Template


class GpqaTask(Task):
    options: list[dict[str, str]]
    expected_answer: str
    template_metadata: Template = Template()


async def verify(task: GpqaTask, reply: Reply) -> Verdict:
    options = {letter.upper(): wording for option in task.options for letter, wording in option.items()}
    answer = await task.template_metadata.option(reply.text, options)
    answer = answer or letters.in_box_or_after_answer(reply.text)
    return Verdict(float(answer == task.expected_answer.strip().upper()), fields={"extracted_answer": answer})


environment = Environment(
    resource=verify,
    description="Graduate-level multiple-choice questions in physics, chemistry and biology (GPQA Diamond).",
    domain="knowledge",
    data_license="CC-BY-4.0",
)
