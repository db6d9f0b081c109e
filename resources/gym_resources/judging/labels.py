"""Which of some labels a judge settles on.

NeMo Gym takes the label that occurs first, so a judge that weighs both before it decides, or quotes a reply
that holds one, is misread. Here a label counts in the last line only, where the prompts want it: the one with
which the line opens, where its reason follows, else the last one there, outside of code where there is one.
``first`` is NeMo Gym's rule. Its prompts ask for reasons first, and then for a last line such as
``[[A!=B]] they are not equivalent``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from gym_resources.judging.thoughts import without_thoughts

LabelRule = Literal["last", "first"]

_CODE = re.compile(r"`[^`]*+`")
_REASON = re.compile(r"[\s*_`)]*+(?:[:.;–—]|-(?!\w)|because\b|since\b|they are\b|\Z)")
"""How an explanation of the label before it begins."""
_SENTENCE = re.compile(r"[:.?!;–—-][\s*_`(]*+\Z")
_AROUND = " \t*_`()"
_says = re.compile(r"[^\W_]").search


def lines(text: str) -> list[str]:
    """The lines that have a letter or a digit, thoughts aside: a line of marks alone closes a block of code.

    >>> lines("<think>A?</think>So:\\n```\\n[[B]]\\n```")
    ['So:', '[[B]]']
    """
    return list(filter(_says, without_thoughts(text).splitlines()))


def counted(text: str, rule: LabelRule = "last") -> str:
    """The part of an answer in which a label counts: the last line; with the rule ``first``, all of it."""
    said = without_thoughts(text)
    return said if rule == "first" else next(filter(_says, reversed(said.splitlines())), "")


def label(text: str, labels: Sequence[str], rule: LabelRule = "last") -> str | None:
    """The label that an answer settles on, whole words only; None if it has none. Thoughts do not count.

    A label with which the last line opens, before a colon, a full stop, a dash, or ``because``, is what is
    said, and what follows is why: it may hold the other label, or the article ``A``. A label that ends the
    line as a sentence of its own corrects it.

    >>> label("Not [[A!=B]]: they agree. [[A=B]]", ["[[A=B]]", "[[A!=B]]"])
    '[[A=B]]'
    >>> label("INCORRECT", ["CORRECT", "INCORRECT"])
    'INCORRECT'
    >>> label("B. A right answer would name Oslo.", ["A", "B", "C"])
    'B'
    >>> label("[[A!=B]] because only equal numbers are [[A=B]].", ["[[A=B]]", "[[A!=B]]"])
    '[[A!=B]]'
    >>> label("[[A=B]]. No, wait: [[A!=B]].", ["[[A=B]]", "[[A!=B]]"])
    '[[A!=B]]'
    >>> label("The reply says [[A=B]].\\nThat is wrong.", ["[[A=B]]", "[[A!=B]]"])
    """
    pattern = _pattern(tuple(labels))
    said = counted(text, rule)
    if rule == "first":
        found = pattern.search(said)
        return found[0] if found else None
    places = list(pattern.finditer(said))
    if places and not said[: places[0].start()].strip(_AROUND) and _REASON.match(said, places[0].end()):
        end = places[-1]
        corrected = not said[end.end() :].strip(f"{_AROUND}.") and _SENTENCE.search(said, 0, end.start())
        return end[0] if corrected else places[0][0]
    matches = pattern.findall(_CODE.sub(" ", said))
    return matches[-1] if matches else places[-1][0] if places else None


@lru_cache(maxsize=256)
def _pattern(labels: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the labels, the longest first; one that begins or ends with a letter is not a part of a word."""
    parts = [
        (r"(?<!\w)" if one[0].isalnum() else "") + re.escape(one) + (r"(?!\w)" if one[-1].isalnum() else "")
        for one in sorted(labels, key=len, reverse=True)
    ]
    return re.compile("|".join(parts))
