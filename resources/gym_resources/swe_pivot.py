"""The next action of a coding agent, equal to the demonstrated one.

The row's ``expected_action`` is one call of a tool, or a message, or a batch of calls; nothing is executed.
Where calls are expected, the model must make as many, and each must equal one of them, each its own; a text
beside them does not matter. Two calls are equal if they have the same tool and the same arguments: an
argument that is null is left out, texts are compared without spaces at the ends of lines and empty lines
around them, the arguments ``path`` and ``file_path`` as paths (``/a//b/../c`` is ``/a/c``), all others by
their values. Where a message is expected, any text without a call is right; with ``strict`` it must share a
word of at least four letters with the expected one. The reward is 1 or 0, and ``failure_reason`` says by what
a reply fails.

With ``string_similarity_threshold`` (of the row, or ``--set``) below 1, its default, texts of several words
need only be as alike as that, by the ratio of Python's ``difflib.SequenceMatcher``: another wording of a
command or of a new piece of code can be right, another path or subcommand cannot.

NeMo Gym publishes the rows of its environment of this name and not the rule in words. It is said to compare
the kinds of the tools, their targets and, with a threshold, the similarity of their arguments; so the rule
above is our own choice.
``pivot_tags`` and ``metadata`` play no part. Source: PivotRL (arXiv:2603.21383); the rows are our own.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Annotated, Any, cast

from gym_runtime import Environment, Reply, Task, TaskError, Verdict
from gym_runtime.messages import FunctionCall
from msgspec import Meta

from gym_resources.expected_calls.expected import (
    ExpectedAction,
    ExpectedBatch,
    ExpectedCall,
    ExpectedMessage,
    decoded,
)
from gym_resources.expected_calls.matching import largest_matching
from gym_resources.expected_calls.messages import shares_a_word
from gym_resources.extract.patterns import bounded
from gym_resources.extract.similarity import ratio

Arguments = Mapping[str, Any]
PATHS = {"path", "file_path"}
QUICK = 4_000
"""Two texts that have so many characters together are compared in a few milliseconds."""


class PivotTask(Task):
    expected_action: ExpectedAction
    string_similarity_threshold: Annotated[float, Meta(ge=0, le=1)] = 1.0
    strict: bool = False


async def verify(task: PivotTask, reply: Reply) -> Verdict:
    reason = await failure(task, reply)
    return Verdict(float(reason == "none"), fields={"failure_reason": reason})


async def failure(task: PivotTask, reply: Reply) -> str:
    """By what the reply fails, or ``none``."""
    action, calls = task.expected_action, reply.function_calls
    if isinstance(action, ExpectedMessage):
        right = bool(reply.all_text.strip()) and not calls
        if task.strict:
            right = right and shares_a_word(reply.all_text, str(action.content))
        return "none" if right else "message_expected"
    if not calls:
        return "call_expected"
    expected = action.calls if isinstance(action, ExpectedBatch) else [action]
    if len(calls) != len(expected):
        return "number_of_calls"
    if sorted(call.name for call in calls) != sorted(call.name for call in expected):
        return "tool_name"
    equal = [[await same(task, one, other) for other in calls] for one in expected]
    places = range(len(calls))
    pairs = largest_matching(places, places, lambda i, j: equal[i][j])
    return "none" if pairs == len(expected) else "arguments"


async def same(task: PivotTask, expected: ExpectedCall, made: FunctionCall) -> bool:
    wanted, given = decoded(expected.arguments), decoded(made.arguments)
    if expected.name != made.name or not isinstance(wanted, dict) or not isinstance(given, dict):
        return expected.name == made.name and wanted == given
    ours, theirs = without_nulls(cast("Arguments", wanted)), without_nulls(cast("Arguments", given))
    if ours.keys() != theirs.keys():
        return False
    for name, value in ours.items():
        if not await alike(name, value, theirs[name], task.string_similarity_threshold):
            return False
    return True


def without_nulls(arguments: Arguments) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


async def alike(name: str, expected: object, given: object, least: float) -> bool:
    if not isinstance(expected, str) or not isinstance(given, str):
        return type(expected) is type(given) and expected == given
    if name in PATHS:
        return posixpath.normpath(expected.strip()) == posixpath.normpath(given.strip())
    wanted, text = trimmed(expected), trimmed(given)
    if wanted == text or least == 1 or len(wanted.split(maxsplit=1)) < 2:
        return wanted == text
    try:
        found = await bounded(ratio, text, wanted, least, long=QUICK - len(wanted))
    except TaskError:  # it took too long: no other text than the expected one may escape its 0
        return False
    return found is not None and found >= least


def trimmed(text: str) -> str:
    """A text without spaces at the ends of its lines and empty lines around it."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


environment = Environment(
    resource=verify,
    description="The next call of a coding agent, equal to the demonstrated one.",
    domain="agent",
    agent="single_turn",
    agent_refs=("swe_pivot_tool_simulation_agent",),
    data_license="Apache-2.0",
)
