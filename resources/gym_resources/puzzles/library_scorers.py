"""Scorers of the library reasoning-gym, and how far their word can be taken."""

from __future__ import annotations

import re
from typing import Any, Protocol

UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a scorer raises on an answer that it cannot read."""
_NONSENSE = "~"
_NO_NUMBER = re.compile(r"\b(?:nan|inf(?:inity)?)\b", re.IGNORECASE)


class Scorer(Protocol):
    """A dataset's scorer: how right an answer to an entry is, 0 to 1."""

    def __call__(self, answer: str, entry: dict[str, Any]) -> float: ...


def is_told(score: Scorer, entry: dict[str, Any], answer: str) -> bool:
    """Whether a scorer can tell that an answer, which it pays in full, is right.

    Some scorers pay any text, as that of `game_of_life_halting` does, and some pay 1 for the answer `nan`.
    """
    try:
        paid = score(answer=_NONSENSE, entry=entry)
    except UNREADABLE:
        paid = 0.0
    return paid < 1 and not _NO_NUMBER.search(answer)
