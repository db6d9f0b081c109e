"""Is a reply's answer equivalent to the expected one? The rule of NeMo Gym's ``equivalence_llm_judge``.

The candidate is what an expression finds in the model's last message (its last match), or all of it. A judge
compares it with the expected answer. If they differ and the expression was the row's own, the whole message
may be compared again; if they agree, they may be compared a second time in swapped places.

Different from NeMo Gym on purpose: an empty reply is worth 0 without asking the judge; a row without an
expected answer is refused; the judge's last label counts, not its first (``label_rule``).
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from gym_runtime import Model, Prompt, Reply, Verdict, quoted

from gym_resources.judging.asking import JudgedTask, Judging
from gym_resources.judging.extraction import extracted
from gym_resources.judging.labels import label
from gym_resources.judging.texts import last_message, last_user_text


class Template(msgspec.Struct):
    """How a row's question asks for the answer's form."""

    output_regex: str | None = None


class EquivalenceTask(JudgedTask):
    """A question with an expected answer. The fields after the first three are NeMo Gym's configuration.

    Attributes:
        expected_answer: that of ``metadata`` if it is left out.
        use_per_record_regex: the row's ``output_regex`` finds the candidate, else ``response_extract_regex``.
        question_extract_regex: what of the last user message is the question; by default all.
        extraction_length_threshold: an expected answer of more characters is compared with the whole message.
        reward_if_full_generation_succeeds: the worth of a message that is right where its extract is not.
    """

    prompt: ClassVar[Prompt]

    expected_answer: str = ""
    metadata: dict[str, Any] | None = None
    template_metadata: Template = msgspec.field(default_factory=Template)
    use_per_record_regex: bool = True
    response_extract_regex: str | None = None
    question_extract_regex: str | None = None
    extraction_length_threshold: int | None = None
    check_full_generation_on_fail: bool = False
    reward_if_full_generation_succeeds: float = 0.0
    check_twice_swap: bool = False
    reward_if_swap_fails: float = 0.0
    judge_equal_label: str = "[[A=B]]"
    judge_not_equal_label: str = "[[A!=B]]"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.expected_answer:
            named = (self.metadata or {}).get("expected_answer")
            self.expected_answer = named if isinstance(named, str) else ""
        if not self.expected_answer.strip():
            raise ValueError("'expected_answer' is missing, also in 'metadata'")

    @property
    def own_regex(self) -> str | None:
        """The row's own expression, where it is to be used."""
        return self.template_metadata.output_regex if self.use_per_record_regex else None

    @property
    def is_long(self) -> bool:
        """The expected answer is too long for an extract."""
        threshold = self.extraction_length_threshold
        return bool(self.own_regex) and threshold is not None and len(self.expected_answer) > threshold

    async def candidate(self, said: str) -> str:
        """What of a message is its answer."""
        if self.is_long:
            return said
        return await extracted(self.own_regex or self.response_extract_regex, said)

    async def question(self) -> str:
        """What the judge is told of the question."""
        return await extracted(self.question_extract_regex, last_user_text(self))


async def verify_equivalence(task: EquivalenceTask, reply: Reply, judge: Model) -> Verdict:
    """The verdict of a judge on a reply."""
    said = last_message(reply)
    if not said:
        return Verdict(0.0, fields=_fields(task, None, None))
    candidate, question = await task.candidate(said), await task.question()
    labels = (task.judge_equal_label, task.judge_not_equal_label)
    judging = Judging(judge, task, lambda text: label(text, labels, task.label_rule))

    async def equal(gold: str, other: str) -> bool:
        prompt = task.prompt.fill(
            question=quoted(question),
            gold=quoted(gold),
            candidate=quoted(other),
            equal=task.judge_equal_label,
            not_equal=task.judge_not_equal_label,
        )
        return await judging.label(prompt) == task.judge_equal_label

    reward = 0.0
    if await equal(task.expected_answer, candidate):
        swapped = not task.check_twice_swap or await equal(candidate, task.expected_answer)
        reward = 1.0 if swapped else task.reward_if_swap_fails
    elif task.check_full_generation_on_fail and task.own_regex and not task.is_long:
        right = await equal(task.expected_answer, said)
        reward = task.reward_if_full_generation_succeeds if right else 0.0
    return Verdict(reward, fields=_fields(task, candidate, judging))


def _fields(task: EquivalenceTask, candidate: str | None, judging: Judging | None) -> dict[str, Any]:
    asked: dict[str, Any] = {"judge_evaluations": [], "judge_unparseable": 0}
    if judging is not None:
        asked = judging.fields()
    return {"expected_answer": task.expected_answer, "extracted_answer": candidate, **asked}
