"""Answers that cite documents in the form, and by the ids, that the prompt demands, or cite nothing.

The row's ``verifier`` says the ``mode``, the ``grammar`` of a citation, what an id looks like and which ids
exist. What the answer says does not count. In the mode ``cite`` the reward is 1 if it passes these gates in
order, else 0, and ``match_details`` names the first that it fails:

- ``structural``: there is a text, and no tool was called;
- ``no_answer``: a letter or digit remains without the citations (a claim within a citation counts);
- ``malformed_attempt``: nothing that looks like an id (``citation_…``) remains outside of citations, nor an
  empty citation; in the two grammars with tags each opening tag is that of a citation, and each closing one;
- ``must_cite``: there are ``min_valid_citations`` ids or more;
- ``no_hallucination``: all of them are in ``valid_id_set``; ``citation_xmpl``, the example in
  instructions, never is;
- ``correctness_missed_gold``: each of ``expected_ids``, if the row has any, is cited;
- ``correctness_over_cap``: at most ``expected_slack`` further ids are.

In the mode ``no_cite`` it is 1 for a text without a call, without ids and without citations of any form.

Rows, gates and their names are those of NeMo Gym's environment of this name, as its README describes them.
How each grammar looks is told by its rows for four of the nine; the others, and several ids in one citation
(with commas, without blanks), are our reading. The row's ``id_regex`` is searched for in a process under a
time limit. Source: the README and rows of NeMo Gym's ``citation_if``; the example rows are our own.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict
from msgspec import Meta

from gym_resources.extract.citations import Found, Grammar, any_form, pattern, read
from gym_resources.extract.patterns import bounded

DEFAULT_IDS = {"full_source": r"citation_[0-9]+", "snippet": r"citation_[0-9]+:snippet_[0-9]+"}
NEVER_VALID = "citation_xmpl"
SHOWN = 100
"""The most cited ids that a result row keeps."""


class Citations(msgspec.Struct, kw_only=True):
    """What a row demands of citations."""

    type: Literal["citation_if"] = "citation_if"
    mode: Literal["cite", "no_cite"] = "cite"
    grammar: Grammar
    id_kind: Literal["full_source", "snippet"] = "full_source"
    id_regex: str | None = None
    valid_id_set: list[str]
    expected_ids: list[str] | None = None
    expected_slack: Annotated[int, Meta(ge=0)] = 1
    min_valid_citations: Annotated[int, Meta(ge=0)] = 1

    def __post_init__(self) -> None:
        try:
            re.compile(pattern(self.grammar, self.one_id))
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"'id_regex' is no regular expression: {error}") from None

    @property
    def one_id(self) -> str:
        return self.id_regex or DEFAULT_IDS[self.id_kind]


class CitationTask(Task):
    """A question on documents, which the answer must cite.

    Attributes:
        verifier: the form of a citation, the ids that exist, and those that must be cited.
    """

    verifier: Citations


def failed_gate(task: Citations, found: Found) -> str | None:
    """The first gate that a text with citations fails; None if it passes all."""
    cited, valid = set(found.cited), set(task.valid_id_set) - {NEVER_VALID}
    expected = None if task.expected_ids is None else set(task.expected_ids)
    gates = {
        "no_answer": not found.rest,
        "malformed_attempt": found.malformed,
        "must_cite": found.ids < task.min_valid_citations,
        "no_hallucination": not cited <= valid,
        "correctness_missed_gold": expected is not None and not expected <= cited,
        "correctness_over_cap": expected is not None and len(cited) > len(expected) + task.expected_slack,
    }
    return next((gate for gate, fails in gates.items() if fails), None)


async def verify(task: CitationTask, reply: Reply) -> Verdict:
    text, wanted = reply.joined_text, task.verifier
    found = await bounded(read, text, wanted.grammar, wanted.one_id, expressions=[wanted.one_id])
    if not text or reply.function_calls:
        gate = "structural"
    elif wanted.mode == "cite":
        gate = failed_gate(wanted, found)
    else:
        gate = "must_not_cite" if found.ids or found.malformed or any_form(text) else None
    details: dict[str, Any] = {"gate": gate, "cited_ids": found.cited[:SHOWN]}
    return Verdict(float(gate is None), fields={"match_details": details})


environment = Environment(
    resource=verify,
    description="Answers that cite documents in a given form, or cite nothing.",
    domain="instruction_following",
    agent="single_turn",
    data_license="Apache-2.0 (own rows)",
)
