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


def truth(text: str) -> float | None:
    """1.0 for yes, 0.0 for no, in any of the usual words and any case; else None.

    >>> truth("Yes."), truth("absent"), truth("perhaps")
    (1.0, 0.0, None)
    """
    word = text.strip().strip(".!*$\"'").strip().lower()
    return 1.0 if word in YES else 0.0 if word in NO else None
