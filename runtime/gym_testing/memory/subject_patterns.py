"""Which subjects a pattern matches: ``*`` is one token, a trailing ``>`` one or more."""

from __future__ import annotations

import re
from functools import lru_cache

_TOKENS = {"*": r"[^.]+", ">": r".+"}


@lru_cache(4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression for `re.Pattern.fullmatch`."""
    return re.compile(r"\.".join(_TOKENS.get(token) or re.escape(token) for token in pattern.split(".")))


def overlap(one: str, other: str) -> bool:
    """Whether a subject exists that both patterns match."""
    ours, theirs = one.split("."), other.split(".")
    for a, b in zip(ours, theirs, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(ours) == len(theirs)
