"""How alike two texts are, by the ratio of Python's ``difflib.SequenceMatcher``."""

from __future__ import annotations

from difflib import SequenceMatcher

LONG = 20_000


def ratio(expected: str, given: str, least: float) -> float | None:
    """The ratio, 0 to 1. It can take time that grows with the square of the texts: run it where it can be
    killed.

    None if a text has more than `LONG` characters, and their lengths or the characters that both have rule
    out that it reaches ``least``.
    """
    matcher = SequenceMatcher(None, expected, given)
    if max(len(expected), len(given)) > LONG and (
        matcher.real_quick_ratio() < least or matcher.quick_ratio() < least
    ):
        return None
    return matcher.ratio()
