r"""Multiple-choice questions, answered with an option's letter or wording.

The verifier reads the texts of all the model's messages, joined; without any text the reward is 0. It finds
the option in three steps:

1. the expressions in the row's ``template_metadata.output_regex`` (one, or several in order), in any case,
   each by its last match. A captured single letter is the answer, an option's or not;
   else it may be an option's whole wording. An invalid expression is skipped;
2. if that names nothing, the row's ``grading_mode``:
   ``strict_single_letter_boxed`` takes the only Latin letter in the last ``\boxed{}`` if it is a capital,
   or the capital that labels its content (``B: Iron``, ``B) Iron``), with or without ``\text{}`` around it;
   ``lenient_boxed`` takes otherwise the only option whose wording is part of the last box;
   ``lenient_answer_colon`` takes the text after the first ``Answer:``, a letter or a wording;
   ``lenient_answer_colon_md`` goes through all ``Answer:`` from the last to the first, whatever their
   markup, and takes letters only, also Arabic, Bengali and full-width ones;
3. the option is compared with ``expected_answer``. A row without one is worth 0, as in NeMo Gym.

With ``strict`` the answer must also be the only option that its last statement names (`letters.alone`): lists
of options, denials and words among which an option stands are worth 0. NeMo Gym has no such rule.

Options are those with a single letter for their name and with a wording; a row may have none. Fields, modes
and rewards are those of NeMo Gym's environment of this name. Two things differ: an expression is searched for
in a process under a time limit (it could block a worker for ever), and an expression with several groups, an
error in NeMo Gym, captures the first that is not empty. Source: the rule of NeMo Gym's ``mcqa``; the rows are
our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Literal, cast

from gym_runtime import DatasetSource, Environment, Reply, Task, Verdict

from gym_resources.extract import letters, templates
from gym_resources.extract.patterns import bounded
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


TRAIN = tuple(f"data/train-{number:05}-of-00004.parquet" for number in range(4))


class McqaTask(Task):
    options: tuple[dict[str, str | None], ...] = ()
    expected_answer: str = ""
    grading_mode: GradingMode = "strict_single_letter_boxed"
    template_metadata: Template = Template()
    strict: bool = False


def chosen(text: str, expressions: list[str], mode: GradingMode, options: letters.Options) -> str | None:
    """The letter of a text's answer."""
    return templates.matched(text, expressions, options) or GRADING[mode](text, options)


async def verify(task: McqaTask, reply: Reply) -> Verdict:
    expressions = task.template_metadata.expressions
    options, expected = letters.lettered(task.options), task.expected_answer.strip().upper()
    args = (expressions, task.grading_mode, options)
    answer = await bounded(chosen, reply.joined_text, *args, expressions=expressions)
    right = bool(expected) and answer == expected
    if task.strict and right:
        right = letters.alone(reply.joined_text, expected, options)
    return Verdict(float(right), fields={"extracted_answer": answer})


def rows(*files: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of the published Parquet files, whose records have every field that any row has."""
    for one in chain.from_iterable(files):
        yield present(one)


def present(value: Any) -> Any:
    """A value without the fields that are null, also those further in."""
    if isinstance(value, dict):
        return {name: present(one) for name, one in cast("dict[str, Any]", value).items() if one is not None}
    return list(map(present, cast("list[Any]", value))) if isinstance(value, list) else value


environment = Environment(
    resource=verify,
    description="Multiple-choice questions, graded by the option that the answer names.",
    domain="knowledge",
    reads_input=False,
    data_license="Apache-2.0 (own rows)",
    datasets=(
        DatasetSource(
            repo_id="nvidia/Nemotron-RL-knowledge-mcqa",
            file=TRAIN[0],
            further_files=TRAIN[1:],
            license="CC-BY-4.0",
            rows=rows,
        ),
    ),
)
