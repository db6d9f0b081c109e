"""How often this process asked services and pages: plain numbers, which its worker puts into its metrics."""

from __future__ import annotations

from collections import Counter
from typing import Literal

How = Literal["answered", "cached", "limited", "failed"]

_counts: Counter[tuple[str, How]] = Counter()


def count(service: str, how: How) -> None:
    """Count one request; ``service`` is the name of a service, or ``page``."""
    _counts[service, how] += 1


def taken() -> dict[tuple[str, How], int]:
    """The counts since the last call."""
    found = dict(_counts)
    _counts.clear()
    return found
