"""The next step of a conversation with tools: a message, a call, or several calls in parallel.

The row's ``expected_action`` sets which. Where a message is expected, any message with a text is right, even
an empty text, and any call is wrong; a refusal is not a message. Where calls are expected, each of the
model's is paired with at most one of them so that as many as possible fit (same name, arguments `alike`);
their order does not matter, nor does a message beside them, and nothing is executed.

The reward is 1 if every expected call finds its partner; further calls do not matter. With
``parallel_tool_call_rewarding`` it counts how many calls there are, unless one was expected and one was made:
there must be as many as expected (``allow_subset`` permits fewer, ``allow_superset`` more);
else the reward is 0. Otherwise, by ``parallel_tool_call_reward_mode``,
``binary_strict``  (the default) is 1 if as many fit as can (all expected, or all made, if these are fewer)
``fractional``     is the share of these that fit
``f1``             is twice the pairs over all calls, expected and made

With ``strict``, which NeMo Gym lacks, a message must share a word of at least four letters with the expected
one, and there must be as many calls as expected.

``category`` says how the step compares: ``message``, ``expected calls``, ``other arguments``, ``other tool``,
``message instead of call``, ``call instead of message`` or ``no action``.

The configurations of NeMo Gym's environment of this name (conversations, function calling, pivots of SWE,
search and droid trajectories, parallel calls) have the same rows and are selected by their ``agent_ref``;
their settings are fields of the row here, and the row's own fields win. Two things differ: a row whose
expected arguments are not JSON is refused (including NaN and numbers beyond a float's range), and so is a
batch without calls.
Source: the rule of NeMo Gym's namesake; the rows are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from gym_runtime import Environment, Reply, Task, Verdict, published
from gym_runtime.messages import FunctionCall

from gym_resources.expected_calls.arguments import alike
from gym_resources.expected_calls.expected import (
    ExpectedAction,
    ExpectedBatch,
    ExpectedCall,
    ExpectedMessage,
    decoded,
)
from gym_resources.expected_calls.matching import largest_matching
from gym_resources.expected_calls.messages import has_text, shares_a_word

NAME = "single_step_tool_use_with_argument_comparison"
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "droid_pivot": {"word_count_similarity_threshold": 0.0},
    "parallel_tool_calls": {
        "parallel_tool_call_rewarding": True,
        "parallel_tool_call_reward_mode": "f1",
        "allow_subset": True,
        "allow_superset": True,
    },
    "search_pivot": {"word_count_similarity_threshold": 0.3},
    "swe_pivot": {"word_count_similarity_threshold": 0.0},
    "toolcall_schema": {"word_count_similarity_threshold": 0.1},
}


class StepTask(Task):
    expected_action: ExpectedAction
    parallel_tool_call_rewarding: bool = False
    parallel_tool_call_reward_mode: Literal["binary_strict", "fractional", "f1"] = "binary_strict"
    allow_subset: bool = False
    allow_superset: bool = False
    word_count_similarity_threshold: float = 0.1
    strict: bool = False


async def verify(task: StepTask, reply: Reply) -> Verdict:
    action, calls = task.expected_action, reply.function_calls
    if isinstance(action, ExpectedMessage):
        right = has_text(reply) and not calls
        if task.strict:
            right = right and shares_a_word(reply.joined_text, str(action.content))
        found = "message" if right else "call instead of message" if calls else "no action"
        return Verdict(float(right), fields={"category": found})
    expected = named(action.calls if isinstance(action, ExpectedBatch) else [action])
    fits = partial(alike, word_similarity=task.word_count_similarity_threshold)
    matched = largest_matching(expected, named(calls), fits)
    surplus = task.strict and len(calls) != len(expected)
    return Verdict(
        0.0 if surplus else graded(task, len(expected), len(calls), matched),
        fields={
            "num_expected": len(expected),
            "num_predicted": len(calls),
            "num_matched": matched,
            "category": category(reply, expected, matched),
        },
    )


def category(reply: Reply, expected: Sequence[dict[str, Any]], matched: int) -> str:
    """How the step compares with the expected calls."""
    if matched == len(expected):
        return "expected calls"
    if not reply.function_calls:
        return "message instead of call" if has_text(reply) else "no action"
    names = {call.name for call in reply.function_calls}
    return "other arguments" if all(names.issuperset(call) for call in expected) else "other tool"


def named(calls: Sequence[ExpectedCall] | Sequence[FunctionCall]) -> list[dict[str, Any]]:
    """Each call as an object that holds its arguments under its name."""
    return [{call.name: decoded(call.arguments)} for call in calls]


def graded(task: StepTask, expected: int, made: int, matched: int) -> float:
    if not task.parallel_tool_call_rewarding or expected == made == 1:
        return float(matched == expected)
    too_few = made < expected and not task.allow_subset
    too_many = made > expected and not task.allow_superset
    if not matched or too_few or too_many:
        return 0.0
    if task.parallel_tool_call_reward_mode == "f1":
        return 2 * matched / (expected + made)
    share = matched / min(expected, made)
    return share if task.parallel_tool_call_reward_mode == "fractional" else float(share == 1.0)


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
    agent_settings={f"{configuration}_{NAME}": said for configuration, said in CONFIGURATIONS.items()},
    datasets=(
        *published("nvidia/Nemotron-RL-Agentic-Conversational-Tool-Use-Pivot-v1", "CC-BY-4.0", validation=""),
        *published(
            "nvidia/Nemotron-RL-Agentic-Function-Calling-Pivot-v1",
            "CC-BY-4.0",
            validation="",
            name="function_calling",
        ),
        *published("nvidia/Nemotron-RL-Agentic-SWE-Pivot-v1", "CC-BY-4.0", validation="", name="swe"),
    ),
)
