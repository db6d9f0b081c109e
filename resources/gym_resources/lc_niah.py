"""Find nodes of a large graph in a long prompt, without copying the prompt into the reasoning.

The answer is the list behind the last ``Final Answer:`` in the model's text, such as ``[node1, node2]``;
quotation marks around a node do not count. ``answer_score`` is the F1 of its nodes against
``expected_answer``, a JSON list: 1 if both are empty, 0 if one is, or without a list.
``reasoning_overlap``, from 0 to 1, says how much of the model's reasoning items the row's input holds, by
``overlap_metric_rule``: ``seq_match``, the ratio of Python's ``difflib.SequenceMatcher``; ``ngram16``, the
share of the reasoning's runs of 16 words that stand in the input; ``lcs``, the length of the longest
passage in common over that of the reasoning. The reward is, by ``overlap_grading_rule``, ``base``: the
score; ``multiply``: the score times 1 minus the overlap; ``minus``: the score minus the overlap, which may
be below 0.

Rows, rules and fields are those of NeMo Gym's environment of this name, as its README describes them. The
input is the text of all its messages; that a run is of words is our reading. Where the overlap cannot
change the reward it is not computed, and null. Overlaps are computed in a process that can be killed:
one that takes longer than 30 seconds is a failure of the rollout. Source: the README of NeMo Gym's
``lc_niah``, after OpenAI's GraphWalks (MIT); the rows are our own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from gym_runtime import Environment, Reply, ResourceError, Task, Verdict, run_isolated
from gym_runtime.messages import Message, Reasoning, decode_items

from gym_resources.extract import jsons
from gym_resources.extract.overlap import common_words, longest_common, ratio
from gym_resources.extract.patterns import bounded
from gym_resources.judging.texts import message_lines

Metric = Literal["seq_match", "ngram16", "lcs"]
Grading = Literal["base", "multiply", "minus"]

LIMIT_S = 30.0
_FINAL = re.compile(r"final answer:[\s*_]*+\[([^\[\]]*+)\]", re.IGNORECASE)
_AROUND = " \t\r\n'\"`*"


class NodesTask(Task):
    """A graph and an operation on it.

    Attributes:
        expected_answer: the nodes, a list or one as JSON.
        overlap_metric_rule: how much the reasoning copies the input.
        overlap_grading_rule: what the overlap does to the reward.
    """

    expected_answer: str | list[str]
    overlap_metric_rule: Metric = "seq_match"
    overlap_grading_rule: Grading = "multiply"

    def __post_init__(self) -> None:
        if isinstance(self.expected_answer, str):
            listed = jsons.decode(self.expected_answer, list[str])
            if listed is None:
                raise ValueError(f"expected_answer {self.expected_answer!r:.60}: it must be a list of nodes")
            self.expected_answer = listed

    @property
    def input_text(self) -> str:
        """What the row says to the model."""
        items = decode_items(self.responses_create_params.input_items())
        return "\n".join(message_lines(item) for item in items if isinstance(item, Message))


def nodes(text: str) -> list[str] | None:
    """The nodes of the last answer in a text; None without one.

    >>> nodes("Final Answer: [a]. No: **Final Answer:** ['b', c, b]")
    ['b', 'c']
    """
    last: re.Match[str] | None = None
    for match in _FINAL.finditer(text):
        last = match
    if last is None:
        return None
    return sorted({node.strip(_AROUND) for node in last[1].split(",")} - {""})


def f1(found: list[str], expected: list[str]) -> float:
    """The harmonic mean of the share of the found that is expected, and of the expected that is found.

    >>> f1(["a", "b"], ["a"]), f1([], []), f1([], ["a"])
    (0.6666666666666666, 1.0, 0.0)
    """
    ours, theirs = set(found), set(expected)
    if not ours and not theirs:
        return 1.0
    return 2 * len(ours & theirs) / (len(ours) + len(theirs))


def common_passage(text: str, other: str) -> float:
    """The length of the longest passage in common over that of the text."""
    return longest_common(text, other) / len(text)


METRICS: dict[Metric, Callable[[str, str], float]] = {
    "seq_match": ratio,
    "ngram16": common_words,
    "lcs": common_passage,
}


async def overlap(metric: Metric, reasoning: str, given: str) -> float:
    """How much of the reasoning the input holds; 0 without reasoning."""
    if not reasoning:
        return 0.0
    try:
        return await run_isolated(METRICS[metric], reasoning, given, timeout_s=LIMIT_S)
    except TimeoutError:
        raise ResourceError(
            f"the overlap took longer than {LIMIT_S:g} s, so the answer has no reward",
            stage="verify",
        ) from None


async def verify(task: NodesTask, reply: Reply) -> Verdict:
    answer, rule = await bounded(nodes, reply.joined_text), task.overlap_grading_rule
    score = 0.0 if answer is None else f1(answer, list(task.expected_answer))
    copied: float | None = None
    if rule == "minus" or (rule == "multiply" and score):
        reasoning = "\n".join(item.text for item in reply.items if isinstance(item, Reasoning)).strip()
        copied = await overlap(task.overlap_metric_rule, reasoning, task.input_text)
    match rule, copied:
        case "multiply", float():
            reward = score * (1 - copied)
        case "minus", float():
            reward = score - copied
        case _:
            reward = score
    fields = {"extracted_answer": answer, "answer_score": score, "reasoning_overlap": copied}
    return Verdict(reward, fields=fields)


environment = Environment(
    resource=verify,
    description="Nodes of a large graph in a long prompt, which the reasoning must not copy.",
    domain="long_context",
    agent="single_turn",
    data_license="Apache-2.0 (own rows)",
)
