"""A short answer as a number or as yes or no."""

from __future__ import annotations

import re

LONGEST = 1000
YES = {"1", "1.0", "true", "yes", "present", "pass", "passes", "t", "y"}
NO = {"0", "0.0", "false", "no", "absent", "fail", "fails", "f", "n"}
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*+(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?")


def number(text: str) -> float | None:
    """The number that a text is, or that alone stands in it; commas group digits. Infinite, NaN: no number.

    >>> number("18.02 g/mol"), number("−1,500"), number("2 or 3"), number("nan")
    (18.02, -1500.0, None, None)
    """
    found = _NUMBER.findall(text.replace("\u2212", "-")) if len(text) <= LONGEST else []
    value = float(found[0].replace(",", "")) if len(found) == 1 else float("inf")
    return value if abs(value) != float("inf") else None


_WITH_UNIT = re.compile(rf"[$=~≈\s]*+(?:{_NUMBER.pattern})\s*+(?P<unit>[^\d;]{{0,24}})")


def number_alone(text: str) -> float | None:
    """The number that a text is, with at most a unit behind it; no denial, no imaginary unit.

    >>> number_alone("18.02 g/mol"), number_alone("not 3"), number_alone("3i"), number_alone("3 or so")
    (18.02, None, None, None)
    """
    found = _WITH_UNIT.fullmatch(text.replace("\u2212", "-").strip())
    if found is None or re.search(r"^[ij]$|\b(?:or|not|and)\b", found["unit"].strip()):
        return None
    return number(text)


def truth(text: str) -> float | None:
    """1.0 for yes, 0.0 for no, in any of the usual words and any case; else None.

    >>> truth("Yes."), truth("absent"), truth("perhaps")
    (1.0, 0.0, None)
    """
    word = text.strip().strip(".!*$\"'").strip().lower()
    return 1.0 if word in YES else 0.0 if word in NO else None
