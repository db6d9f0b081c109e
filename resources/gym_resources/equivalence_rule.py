"""Passages and counts from long texts, compared with the expected answer as strings.

The model's text (the texts of all its messages, joined and trimmed) is compared with the trimmed
``expected_answer`` by the row's ``grading_rule``: ``exact`` is 1 for the same text, else 0; ``seq_match``
is the ratio of Python's ``difflib.SequenceMatcher``, twice the matching characters over those of both
texts; ``weighted_seq_match``, the default as in the configuration ``lc``, is that ratio times the shorter
length over the longer one. The same text is worth 1 by every rule, and one without anything in common 0.

Rows are those of NeMo Gym's environment of this name. What its ``weighted_seq_match`` weighs by is
published nowhere; the weight here is ours, so rewards between 0 and 1 may differ from NeMo Gym's, while
their order is much the same. The ratio can take time that grows with the square of the texts, so it is
computed in a process that can be killed, and one that takes longer than 10 seconds is a failure of the
rollout; a text that is more than twenty times as long as the expected one (and 20,000 characters) is worth
0. Source: the configuration and rows of NeMo Gym's
``equivalence_rule``; the example rows are our own.
"""

from __future__ import annotations

from typing import Literal

from gym_runtime import Environment, Reply, ResourceError, Task, Verdict, run_isolated

from gym_resources.extract.overlap import ratio

GradingRule = Literal["exact", "seq_match", "weighted_seq_match"]

LIMIT_S = 10.0
SHORT_CHARS = 500
TIMES, LONG_CHARS = 20, 20_000


class RuleTask(Task):
    """A question on a long text.

    Attributes:
        grading_rule: how texts are compared: as a whole, by the ratio of what matches, or by that ratio times
            the shorter length over the longer one.
    """

    expected_answer: str
    grading_rule: GradingRule = "weighted_seq_match"

    def __post_init__(self) -> None:
        self.expected_answer = self.expected_answer.strip()
        if not self.expected_answer:
            raise ValueError("'expected_answer' is blank")


async def likeness(text: str, expected: str) -> float:
    """The ratio of two texts; 0 where comparing them takes too long."""
    if len(text) > TIMES * len(expected) + LONG_CHARS:
        return 0.0
    if max(len(text), len(expected)) <= SHORT_CHARS:
        return ratio(text, expected)
    try:
        return await run_isolated(ratio, text, expected, timeout_s=LIMIT_S)
    except TimeoutError:
        raise ResourceError(
            f"the comparison took longer than {LIMIT_S:g} s, so the answer has no reward", stage="verify"
        ) from None


async def verify(task: RuleTask, reply: Reply) -> Verdict:
    said, expected = reply.joined_text, task.expected_answer
    reward = float(said == expected)
    if said and not reward and task.grading_rule != "exact":
        reward = await likeness(said, expected)
        if task.grading_rule == "weighted_seq_match":
            lengths = sorted((len(said), len(expected)))
            reward *= lengths[0] / lengths[1]
    return Verdict(reward, fields={"extracted_answer": said})


environment = Environment(
    resource=verify,
    description="Passages and counts from long texts, compared as strings.",
    domain="long_context",
    agent="single_turn",
    agent_refs=("lc_equivalence_rule_simple_agent",),
    data_license="Apache-2.0 (own rows)",
)
