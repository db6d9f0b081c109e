"""Citations in a model's text: marks of several forms that hold the ids of documents.

Source: the names of the forms, and what looks like an id, are those of the README of NeMo Gym's
``citation_if``.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Grammar = Literal[
    "cite_xml",
    "ascii_brackets",
    "claim_wrap_xml",
    "fullwidth_brackets",
    "ref_colon",
    "double_angle",
    "web_brackets",
    "paren_part",
    "markdown_footnote",
    "curly_double",
    "angle_pipe",
]

IDS = r"(?P<_ids>(?:{id})(?:,(?:{id}))*)"
GRAMMARS = {
    "cite_xml": r"<cite>{ids}</cite>",
    "ascii_brackets": r"\[{ids}\]",
    "claim_wrap_xml": r"""<cite [a-z_]+=["']{ids}["']>(?P<_claim>(?:(?!</?cite\b)[\s\S])+)</cite>""",
    "fullwidth_brackets": r"【{ids}】",
    "ref_colon": r"\[ref:{ids}\]",
    "double_angle": r"<<{ids}>>",
    "web_brackets": r"\[web:{ids}\]",
    "paren_part": r"\(Part {ids}\)",
    "markdown_footnote": r"\[\^{ids}\]",
    "curly_double": r"\{{\{{{ids}\}}\}}",
    "angle_pipe": r"<\|{ids}\|>",
}
TAGGED = {"cite_xml", "claim_wrap_xml"}
_ATTEMPT = re.compile(r"citation_[A-Za-z0-9_:]+")
_ANY_FORM = re.compile(r"</?cite\b|【[^】\n]|\[(?:ref:|web:|\^)[^\]\n]|<<[^<>\n]{1,80}>>|\[\d+(?:, ?\d+)*+\]")
_OPENING, _CLOSING = re.compile(r"<cite\b"), re.compile(r"</cite\b")


def pattern(grammar: Grammar, one_id: str) -> str:
    """A citation of one or more ids in a grammar, as a regular expression."""
    return GRAMMARS[grammar].format(ids=IDS.format(id=one_id))


def any_form(text: str) -> bool:
    """Whether there is something like a citation, in whatever form.

    >>> any_form("It is so [1]."), any_form("A list: [a]")
    (True, False)
    """
    return bool(_ATTEMPT.search(text) or _ANY_FORM.search(text))


class Found(msgspec.Struct, frozen=True):
    """What a text holds.

    Attributes:
        ids: how many ids are cited, repeated ones too.
        cited: the different ones.
        rest: there is a letter or digit besides citations, or in a claim.
        malformed: something looks like a citation and is not one.
    """

    ids: int
    cited: list[str]
    rest: bool
    malformed: bool


def read(text: str, grammar: Grammar, one_id: str) -> Found:
    """What a text holds; to be run by `bounded`, because the id's expression is the row's.

    >>> read("So [a,b].", "ascii_brackets", "[ab]")
    Found(ids=2, cited=['a', 'b'], rest=True, malformed=False)
    """
    count, cited, rest, marks, place = 0, dict[str, None](), list[str](), 0, 0
    for match in re.finditer(pattern(grammar, one_id), text):
        ids = match["_ids"].split(",")
        count, marks = count + len(ids), marks + 1
        cited.update(dict.fromkeys(ids))
        rest += [text[place : match.start()], match.groupdict().get("_claim") or ""]
        place = match.end()
    outside = " ".join([*rest, text[place:]])
    unbalanced = grammar in TAGGED and any(len(tag.findall(text)) != marks for tag in (_OPENING, _CLOSING))
    malformed = bool(unbalanced or _ATTEMPT.search(outside) or re.search(pattern(grammar, ""), outside))
    return Found(count, list(cited), bool(re.search(r"[^\W_]", _ATTEMPT.sub(" ", outside))), malformed)
