"""Instructions that run against habit, judged by a rubric with the judge's prompt that the row brings.

For each item of ``rubric`` a judge is asked ``judge_prompt_template`` after ``judge_system_prompt``, with
the row's ``prompt``, the model's last message without its thoughts, ``reference_response`` and the item's
``criteria`` in the places ``{prompt}``, ``{model_response}``, ``{standard_response}`` and ``{criteria}``. A
row without a prompt of its own gets ours. The judge answers with a JSON object whose ``result`` is PASS or
FAIL, or with one of these words alone in its last line. The scores of the items, 1 for PASS, are put
together as ``aggregation_mode`` says: ``mean`` (the default), ``min``, ``max``, ``all``, ``any``, or
``weighted``, which is the mean, because items have no weights. All items are asked at once, and all must be
answered.

Rows, rewards and fields are those of NeMo Gym's environment of this name, as its README and configuration
say. An answer without a verdict is a FAIL; it is counted in ``judge_unparseable``. Different on purpose:
what goes into the places stands between <quoted> tags, and a sentence in the system message says what they
are for, so that a reply cannot play the judge; only the object with which an answer ends counts; an empty
reply is worth 0, without asking the judge; a row without a rubric, or whose template lacks the place of the
reply or of the criteria, is refused. Source: the README and configuration of NeMo Gym's ``inverse_if``; our
prompts and the example rows are our own.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from gym_runtime import Environment, Model, Prompt, Reply, Role, Verdict, quoted

from gym_resources.judging.asking import JudgedTask, Judging
from gym_resources.judging.requirements import QUOTING, SYSTEM, TEMPLATE, explanation, result
from gym_resources.judging.rubric import AGGREGATIONS, Aggregation, Item
from gym_resources.judging.texts import last_message
from gym_resources.judging.thoughts import without_thoughts

NEEDED = {"model_response", "criteria"}


class Criterion(msgspec.Struct):
    criteria: str
    id: str | int = ""


class InverseTask(JudgedTask, kw_only=True):
    """An instruction, an answer that follows it, and what to check.

    Attributes:
        rubric: what the judge is asked, one by one.
        judge_prompt_template: the question to the judge, with places in braces; by default ours.
        judge_system_prompt: the system message before it; by default ours.
        aggregation_mode: how the scores of the items are put together.
    """

    rubric: Annotated[list[Criterion], msgspec.Meta(min_length=1)]
    prompt: str = ""
    reference_response: str = ""
    judge_prompt_template: str = ""
    judge_system_prompt: str = ""
    aggregation_mode: Aggregation = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        missing = NEEDED - self.template.places
        if missing:
            named = ", ".join(f"{{{name}}}" for name in sorted(missing))
            raise ValueError(f"'judge_prompt_template' lacks {named}")

    @property
    def template(self) -> Prompt:
        return Prompt(self.judge_prompt_template.strip() or TEMPLATE)

    @property
    def system(self) -> str:
        return f"{self.judge_system_prompt.strip() or SYSTEM}\n\n{QUOTING}"

    def questions(self, said: str) -> list[str]:
        """What the judge is asked of each item; other braces of the template stay as they are."""
        template = self.template
        texts = {name: f"{{{name}}}" for name in template.places}
        texts |= {
            "prompt": quoted(self.prompt),
            "model_response": quoted(said),
            "standard_response": quoted(self.reference_response),
        }
        asked = [texts | {"criteria": quoted(one.criteria)} for one in self.rubric]
        return [template.fill(**{name: one[name] for name in template.places}) for one in asked]


async def verify(task: InverseTask, reply: Reply, judge: Model) -> Verdict:
    said = without_thoughts(last_message(reply))
    judging = Judging(judge, task, result)
    answers: list[str | None] = [None] * len(task.rubric)
    if said:
        answers = await judging.labels(task.questions(said), system=task.system)
    scores = [float(answer == "PASS") for answer in answers]
    evaluations: list[dict[str, Any]] = [
        {
            "criterion_id": item.id,
            "criteria": item.criteria,
            "verdict": answers[number] or "FAIL",
            "explanation": explanation(judging.texts[number]),
            "judge_response": judging.texts[number],
            "score": scores[number],
        }
        for number, item in enumerate(task.rubric if said else ())
    ]
    fields = {
        "generated_response": said,
        "rubric_evaluations": evaluations,
        "aggregation_mode": task.aggregation_mode,
        "num_passed": int(sum(scores)),
        "num_total": len(scores),
        **judging.fields(),
    }
    items = [Item(question=one.criteria) for one in task.rubric]
    return Verdict(AGGREGATIONS[task.aggregation_mode](scores, items), fields=fields)


environment = Environment(
    resource=verify,
    description="Instructions that run against habit, judged by a rubric (Inverse IF).",
    domain="instruction_following",
    agent="single_turn",
    roles=(Role(name="judge", sampling={"temperature": 0.7, "top_p": 0.8, "max_output_tokens": 8192}),),
    data_license="Apache-2.0 (own rows)",
)
