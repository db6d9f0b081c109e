"""The next action of an agent at a terminal, compared with the demonstrated one by the rules of its harness.

The row's ``expected_action`` is a message, one call of a tool, or a batch of calls in one answer. Nothing is
executed. Where a message is expected, any text that is not blank is right, and any call is wrong. Where calls
are expected, the model must make as many; a text beside them does not matter. Both are sorted by the tools'
names, with ``agent006`` also by their arguments, and compared pair by pair; whether the row calls its batch
``ordered`` does not matter. In each pair

1. the made call meets the schema of its tool in ``declared_tools`` (without the field: in the row's tools),
2. both name the same tool,
3. the made call has no argument that the expected one lacks; it may lack some,
4. the argument that the row's ``harness`` compares of this tool, if any, is alike
   (`gym_resources.expected_calls.harnesses`): the command of a shell, code, a result or the query of a search
   by the ratio of Python's ``difflib.SequenceMatcher``, a plan by being there. Other values do not matter;
   but with ``opencode`` and ``stirrup``, of a tool without such an argument, all values must be alike.

With ``strict``, which NeMo Gym lacks, a message must share a word of at least four letters with the expected
one, and a made call has the same arguments as the expected one, with the same values.

The ratio must reach the row's ``threshold``; without the field it is ``string_similarity_threshold``, and
``query_string_similarity_threshold`` for queries. The reward is 1 or 0; ``failure_reason`` says by what a
reply fails, ``similarity_scores`` has the ratios that were computed.

The four configurations of NeMo Gym's environment of this name are selected by the rows' ``agent_ref``, where
a row has no ``harness``. Its rules of ``codex`` and ``agent006`` are published; those of ``opencode`` and
``stirrup`` are not, and are our own choice. A row whose expected tool is not declared could never be worth 1
and is refused. Source: the rulebooks of NeMo Gym's ``terminal_multi_harness``; the rows are our own.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

from gym_runtime import Environment, Reply, Task, TaskError, Verdict
from gym_runtime.messages import FunctionCall
from msgspec import Meta

from gym_resources.expected_calls.expected import (
    DeclaredTool,
    ExpectedAction,
    ExpectedCall,
    ExpectedMessage,
    calls_of,
    decoded,
    parameters_of,
)
from gym_resources.expected_calls.harnesses import Harness, aligned, compared, similarity
from gym_resources.expected_calls.messages import shares_a_word
from gym_resources.schema.strict import misformed, violation

NAME = "terminal_multi_harness"
HARNESSES: tuple[Harness, ...] = ("codex", "opencode", "agent006", "stirrup")
Share = Annotated[float, Meta(ge=0, le=1)]


class HarnessTask(Task):
    expected_action: ExpectedAction
    harness: Harness
    declared_tools: list[DeclaredTool] | None = None
    threshold: Share | None = None
    string_similarity_threshold: Share = 0.9
    query_string_similarity_threshold: Share = 0.8
    strict: bool = False

    def __post_init__(self) -> None:
        schemas = self.schemas()
        for call in self.expected_calls():
            if call.name not in schemas:
                raise ValueError(f"the expected tool '{call.name}' is not among the declared tools")
            if problem := misformed(schemas[call.name]):
                raise ValueError(f"the parameters of the tool '{call.name}' are no JSON schema: {problem}")
            if not isinstance(decoded(call.arguments), dict):
                raise ValueError(f"the arguments expected of '{call.name}' are not an object")

    def expected_calls(self) -> list[ExpectedCall]:
        return calls_of(self.expected_action)

    def schemas(self) -> dict[str, dict[str, Any]]:
        """The parameters of the declared tools, by name."""
        return parameters_of(self.declared_tools, self.responses_create_params.tools)

    def least(self, how: str) -> float:
        """The similarity that is enough."""
        if self.threshold is not None:
            return self.threshold
        if how == "query":
            return self.query_string_similarity_threshold
        return self.string_similarity_threshold


async def verify(task: HarnessTask, reply: Reply) -> Verdict:
    scores: list[float | None] = []
    reason = failure(task, reply, scores)
    return Verdict(float(reason == "none"), fields={"failure_reason": reason, "similarity_scores": scores})


def failure(task: HarnessTask, reply: Reply, scores: list[float | None]) -> str:
    """By what the reply fails, or ``none``; the ratios that were computed are added to ``scores``."""
    expected, made = task.expected_calls(), reply.function_calls
    if not expected:
        right = bool(reply.all_text.strip()) and not made
        if task.strict and isinstance(task.expected_action, ExpectedMessage):
            right = right and shares_a_word(reply.all_text, str(task.expected_action.content))
        return "none" if right else "message_expected"
    if len(made) != len(expected):
        return "number_of_calls" if made else "call_expected"
    for pair in zip(aligned(task.harness, expected), aligned(task.harness, made), strict=True):
        if reason := mismatch(task, *pair, scores):
            return reason
    return "none"


def mismatch(task: HarnessTask, wanted: ExpectedCall, given: FunctionCall, scores: list[float | None]) -> str:
    """Why a call is not the expected one; empty if it is."""
    expected, made = cast("dict[str, Any]", decoded(wanted.arguments)), decoded(given.arguments)
    schema = task.schemas().get(given.name)
    try:
        if schema is None or not isinstance(made, dict) or violation(made, schema) is not None:
            return "schema"
    except ValueError as error:
        raise TaskError(f"the parameters of the tool '{given.name}' are no JSON schema: {error}") from error
    if given.name != wanted.name:
        return "tool_name"
    arguments = cast("dict[str, Any]", made)
    if arguments.keys() - expected.keys():
        return "unexpected_arguments"
    if task.strict and arguments != expected:
        return "arguments"
    for argument, how in compared(task.harness, wanted.name, arguments):
        least = task.least(how)
        scores.append(similarity(how, expected.get(argument), arguments.get(argument), least))
        if (scores[-1] or 0.0) < least:
            return "arguments"
    return ""


environment = Environment(
    resource=verify,
    description="The next call of an agent at a terminal, compared by the rules of its harness.",
    domain="agent",
    agent="single_turn",
    isolated=True,
    shares_process=True,
    imports=("jsonschema",),
    extra="structured-outputs",
    agent_refs=tuple(f"{NAME}_{harness}_agent" for harness in HARNESSES),
    agent_settings={f"{NAME}_{harness}": {"harness": harness} for harness in HARNESSES},
    data_license="Apache-2.0 (own rows)",
)
