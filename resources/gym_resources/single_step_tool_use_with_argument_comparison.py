"""The next step of a conversation with tools: a message, a call, or several calls in parallel.

The row's ``expected_action`` says which. Where a message is expected, any message will do, and any call is
wrong. Where calls are expected, each of the model's calls is paired with at most one of them so that as many
as possible fit (same name, arguments `alike`); their order does not matter, nor does a message beside them.
Of the pairs come a precision (the share of the model's calls that fit) and a recall (the share of the
expected calls that were made), and of these the reward, by the row's ``grading_mode``:
``binary_strict``  1 if both are 1, else 0 (the default)
``fractional``     the smaller of the two
``f1``             their harmonic mean
With ``allow_subset`` calls may be missing, with ``allow_superset`` there may be others beside them, as long
as one fits. A single call is a batch of one. Nothing is executed.

The configurations of NeMo Gym's environment of this name (conversations, function calling, pivots of SWE,
search and droid trajectories, parallel calls) have the same rows; what they set may stand in the row, and
the droid pivots are known by their ``agent_ref``: there, texts of several words need not share any.
Unlike there, a row whose expected arguments are not JSON is refused.
Source: the rule of NeMo Gym's namesake; the rows are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.environment import published
from gym_runtime.messages.items import FunctionCall

from gym_resources.calls.arguments import alike
from gym_resources.calls.expected import ExpectedAction, ExpectedBatch, ExpectedCall, ExpectedMessage, decoded
from gym_resources.calls.matching import largest_matching

NAME = "single_step_tool_use_with_argument_comparison"
CONFIGURATIONS = ("droid_pivot", "parallel_tool_calls", "search_pivot", "swe_pivot", "toolcall_schema")
WORD_SIMILARITY = 0.1


class AgentRef(msgspec.Struct):
    name: str = ""


class StepTask(Task):
    expected_action: ExpectedAction
    grading_mode: Literal["binary_strict", "fractional", "f1"] | None = None
    allow_subset: bool | None = None
    allow_superset: bool | None = None
    word_count_similarity_threshold: float | None = None
    agent_ref: AgentRef | None = None

    @property
    def word_similarity(self) -> float:
        if self.word_count_similarity_threshold is not None:
            return self.word_count_similarity_threshold
        droid = self.agent_ref is not None and self.agent_ref.name.startswith("droid_pivot")
        return 0.0 if droid else WORD_SIMILARITY


async def verify(task: StepTask, reply: Reply) -> Verdict:
    action, calls = task.expected_action, reply.function_calls
    if isinstance(action, ExpectedMessage):
        return Verdict(float(bool(reply.messages) and not calls))
    expected = named(action.calls if isinstance(action, ExpectedBatch) else [action])
    matched = largest_matching(expected, named(calls), partial(alike, word_similarity=task.word_similarity))
    fields = {"num_expected": len(expected), "num_predicted": len(calls), "num_matched": matched}
    if not matched:
        return Verdict(0.0, fields=fields)
    recall = 1.0 if task.allow_subset else matched / len(expected)
    precision = 1.0 if task.allow_superset else matched / len(calls)
    return Verdict(graded(task.grading_mode, precision, recall), fields=fields)


def named(calls: Sequence[ExpectedCall] | Sequence[FunctionCall]) -> list[dict[str, Any]]:
    """Each call as an object that holds its arguments under its name."""
    return [{call.name: decoded(call.arguments)} for call in calls]


def graded(mode: str | None, precision: float, recall: float) -> float:
    if mode == "f1":
        return 2 * precision * recall / (precision + recall)
    worse = min(precision, recall)
    return worse if mode == "fractional" else float(worse == 1.0)


environment = Environment(
    resource=verify,
    description="The next step with tools, a message or calls, compared with the expected one.",
    domain="agent",
    agent="single_turn",
    agent_refs=tuple(
        f"{configuration}_{NAME}{agent}"
        for configuration in CONFIGURATIONS
        for agent in ("", "_agent", "_simple_agent", "_tool_simulation_agent")
    ),
    datasets=published(
        "nvidia/Nemotron-RL-Agentic-Conversational-Tool-Use-Pivot-v1", "CC-BY-4.0", validation=""
    ),
)
