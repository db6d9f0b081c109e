"""The next commands at a terminal, compared with those of an expert as strings, then by a judge.

The texts of all the model's messages, joined by line breaks and without all before the last ``</think>``,
must be one JSON object, in the form of the agent that ``metadata.harness`` names: Terminal-Bench's
``terminus_1`` (``state_analysis``, ``explanation``, ``commands`` of ``keystrokes``, ``is_blocking`` and
``timeout_sec``, ``is_task_complete``) or ``terminus_2`` (``analysis``, ``plan``, ``commands`` of
``keystrokes`` and an optional ``duration``, optionally ``task_complete``), and nothing else. It must call the
task complete if ``expected_answer`` does. Then the reward is 1 if the keystrokes of all commands, put
together, reach the row's ``threshold`` of similarity to the expected ones, by the ratio of Python's
``difflib.SequenceMatcher``. Two empty lists of commands are alike, an empty and another one are not.

What is less alike is shown to a model in the role ``judge``, if there is one
(`gym_resources.judging.command_batches`). NeMo Gym's simple configuration, whose rows look like those of its
default one, is ``--set judge_prompt=simple`` (its threshold is 0.9 instead of 0.95); its string-only one,
which never asks, is selected by the rows' ``agent_ref``. ``failure_reason`` says what a reply fails by. A row
whose ``expected_answer`` is not in its harness's form, worth 0 there, is refused here.

The ratio can take time that grows with the square of the texts, so it is computed in a process that can be
killed; for very long keystrokes whose length or characters rule the threshold out it is
not computed, and ``similarity_score`` is null.
Source: the rule of NeMo Gym's ``terminus_judge``; the forms are those of github.com/laude-institute/
terminal-bench (Apache-2.0); the example rows are our own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from gym_runtime import Environment, Model, Reply, ResourceError, Role, Verdict

from gym_resources.extract import jsons
from gym_resources.extract.terminal_batches import FORMS, Terminus1, Terminus2, similarity
from gym_resources.judging.command_batches import JudgedCommands, JudgePrompt, judged_alike

NAME = "terminus_judge"
THOUGHT_END = "</think>"
THRESHOLDS: dict[JudgePrompt, float] = {"rubric": 0.95, "simple": 0.9}


class Metadata(msgspec.Struct):
    harness: Literal["terminus_1", "terminus_2"]


class TerminusTask(JudgedCommands, kw_only=True):
    metadata: Metadata
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    enable_string_similarity: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch(self.expected_answer) is None:
            raise ValueError(f"'expected_answer' is not a JSON object as {self.metadata.harness} writes it")

    @property
    def least(self) -> float:
        """The similarity that is enough."""
        return THRESHOLDS[self.judge_prompt] if self.threshold is None else self.threshold

    def batch(self, text: str) -> Terminus1 | Terminus2 | None:
        """The commands that a text holds in the harness's form; None for a text of another form."""
        return jsons.decode(text, FORMS[self.metadata.harness])


async def verify(task: TerminusTask, reply: Reply) -> Verdict:
    """The verdict without a judge."""
    said = after_thoughts(reply)
    batch, expected = task.batch(said), task.batch(task.expected_answer)
    assert expected is not None
    matches = batch is not None and (batch.is_task_complete or not expected.is_task_complete)
    alike: float | None = 0.0
    if batch is not None and matches and task.enable_string_similarity:
        alike = similarity(expected, batch, task.least)
    enough = matches and task.enable_string_similarity and alike is not None and alike >= task.least
    if batch is None:
        reason = "model_output_invalid" if jsons.decode(said, msgspec.Raw) is None else "schema_check_failed"
    elif not matches:
        reason = "task_complete_check_failed"
    else:
        off = not task.enable_string_similarity and not task.enable_llm_judge
        reason = "none" if enough or off else "string_similarity_below_threshold"
    fields: dict[str, Any] = {
        "model_output": reply.lines_text,
        "parsed_output": said if batch is not None else None,
        "schema_check_passed": batch is not None,
        "task_complete_check_passed": matches,
        "string_similarity_passed": enough,
        "similarity_score": alike,
        "threshold": task.least,
        "failure_reason": reason,
        "judge_passed": False,
        "judge_evaluations": [],
    }
    return Verdict(float(reason == "none"), fields=fields)


async def review(task: TerminusTask, reply: Reply, verdict: Verdict, judge: Model | None) -> Verdict:
    if not task.enable_llm_judge or verdict.fields["failure_reason"] != "string_similarity_below_threshold":
        return verdict
    if judge is None:
        if task.enable_string_similarity:
            return verdict
        raise ResourceError(
            "'enable_string_similarity' is false and no judge is given: --judge PROVIDER/NAME"
        )
    reason, asked = await judged_alike(judge, task, after_thoughts(reply))
    passed = reason == "none"
    fields = {**verdict.fields, "failure_reason": reason, "judge_passed": passed, **asked}
    return Verdict(float(passed), fields=fields)


def after_thoughts(reply: Reply) -> str:
    """All that was said, behind the last ``</think>``."""
    return reply.lines_text.rpartition(THOUGHT_END)[2]


environment = Environment(
    resource=verify,
    description="Write the next terminal commands in an agent's JSON form, close to an expert's.",
    domain="coding",
    data_license="Apache-2.0 (own rows)",
    isolated=True,
    shares_process=True,
    roles=(Role(name="judge", optional=True),),
    review=review,
    agent_settings={f"{NAME}_string_only": {"threshold": 0.9, "enable_llm_judge": False}},
)
