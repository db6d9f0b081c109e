"""Answers in a form that the prompt demands: formatted lines, or marks that cite parts of a document.

Only the form counts, not what the answer says. The row's ``verifier`` has one of two types:

- ``regex``: lines are counted in which one of the expressions ``verify_regex`` is found; the reward is 1 from
  ``verify_min_matches`` of them on. An expression sees one line at a time.
- ``string_match``: each of ``expected_markers`` must stand in the text, and what the expressions ``patterns``
  find must be one of these markers: the reward is 1 or 0.

The text is that of all the model's messages, joined. Expressions are searched for in a process under a time
limit, because they could block a worker for ever, and in lines of up to 10,000 characters only. Rows whose
expressions are invalid are refused.

Rows and rewards are those of NeMo Gym's environment of this name, with its configurations for citations and
for free forms, whose rows it tells apart by their ``verifier``. That a line counts if any of several
expressions is found in it is our reading of its README. Source: the README of NeMo Gym's
``format_verification``; the rows are our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict
from msgspec import Meta

from gym_resources.extract.patterns import bounded

LONGEST_LINE = 10_000
Expressions = Annotated[list[str], Meta(min_length=1)]


def check_expressions(expressions: Iterable[str]) -> None:
    """Check that texts are regular expressions.

    Raises:
        ValueError: a text is not one.
    """
    for expression in expressions:
        try:
            re.compile(expression)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{expression!r:.80} is no regular expression: {error}") from None


class Lines(msgspec.Struct, tag_field="type", tag="regex", kw_only=True):
    """How many lines must have a form."""

    verify_regex: Expressions
    verify_min_matches: Annotated[int, Meta(ge=1)] = 1
    pattern_id: str = ""

    def __post_init__(self) -> None:
        check_expressions(self.verify_regex)

    async def judged(self, text: str) -> Verdict:
        count = await bounded(matching_lines, text, self.verify_regex, expressions=self.verify_regex)
        fields = {"pattern_id": self.pattern_id, "num_matches": count}
        return Verdict(float(count >= self.verify_min_matches), fields=fields)


class Markers(msgspec.Struct, tag_field="type", tag="string_match", kw_only=True):
    """Which marks must stand in the text, and what a mark looks like."""

    expected_markers: Annotated[list[str], Meta(min_length=1)]
    patterns: list[str] = []

    def __post_init__(self) -> None:
        check_expressions(self.patterns)

    async def judged(self, text: str) -> Verdict:
        missing = [marker for marker in self.expected_markers if marker not in text]
        others = await bounded(
            other_markers, text, self.patterns, self.expected_markers, expressions=self.patterns
        )
        fields: dict[str, Any] = {"missing_markers": missing, "spurious_markers": others}
        return Verdict(float(not missing and not others), fields=fields)


class FormTask(Task):
    """A request for a form.

    Attributes:
        verifier: of type ``regex``, how many lines match; of type ``string_match``, which marks must stand in
            the text.
    """

    verifier: Lines | Markers


def matching_lines(text: str, expressions: list[str]) -> int:
    """How many lines one of the expressions is found in."""
    searches = [re.compile(expression).search for expression in expressions]
    lines = (line for line in text.splitlines() if len(line) <= LONGEST_LINE)
    return sum(any(search(line) for search in searches) for line in lines)


def other_markers(text: str, expressions: list[str], expected: list[str]) -> list[str]:
    r"""The first ten matches that are not expected markers.

    >>> other_markers("It is so [1][3].", [r"\[\d+\]"], ["[1]"])
    ['[3]']
    """
    found: dict[str, None] = {}
    for line in text.splitlines():
        for expression in expressions if len(line) <= LONGEST_LINE else ():
            for match in re.finditer(expression, line):
                if match[0] and match[0] not in expected:
                    found[match[0]] = None
                    if len(found) == 10:
                        return list(found)
    return list(found)


async def verify(task: FormTask, reply: Reply) -> Verdict:
    return await task.verifier.judged(reply.joined_text)


environment = Environment(
    resource=verify,
    description="Formatted lines and citation marks in the form that the prompt demands.",
    domain="instruction_following",
    agent="single_turn",
    agent_refs=("citation_format_simple_agent", "freeform_formatting_simple_agent"),
    data_license="CC-BY-4.0",
)
