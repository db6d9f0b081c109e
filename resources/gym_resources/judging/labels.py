"""Which of some labels a judge settles on.

NeMo Gym takes the label that occurs first, so a judge that weighs both before it decides is misread. Here the
last one counts, outside of code where there is one; ``first`` is there to compare.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from gym_resources.judging.thoughts import without_thoughts

LabelRule = Literal["last", "first"]

_CODE = re.compile(r"```[^`]*+```|`[^`\n]*+`")


def label(text: str, labels: Sequence[str], rule: LabelRule = "last") -> str | None:
    """The label that a text settles on, whole words only; None if it has none. Thoughts do not count.

    >>> label("Not [[A!=B]]: they agree. [[A=B]]", ["[[A=B]]", "[[A!=B]]"])
    '[[A=B]]'
    >>> label("INCORRECT", ["CORRECT", "INCORRECT"])
    'INCORRECT'
    """
    pattern = _pattern(tuple(labels))
    said = without_thoughts(text)
    if rule == "first":
        found = pattern.search(said)
        return found[0] if found else None
    matches = pattern.findall(_CODE.sub(" ", said)) or pattern.findall(said)
    return matches[-1] if matches else None


@lru_cache(maxsize=256)
def _pattern(labels: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the labels, the longest first; one that begins or ends with a letter is not a part of a word."""
    parts = [
        (r"(?<!\w)" if one[0].isalnum() else "") + re.escape(one) + (r"(?!\w)" if one[-1].isalnum() else "")
        for one in sorted(labels, key=len, reverse=True)
    ]
    return re.compile("|".join(parts))
