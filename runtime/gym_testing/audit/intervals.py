"""Intervals of rates: Wilson's, at 95 %."""

from __future__ import annotations

import math

Z = 1.959963984540054


def wilson(found: float, of: int) -> tuple[float, float] | None:
    """The 95 % interval of a rate; None of nothing.

    >>> [round(end, 3) for end in wilson(3, 200)], wilson(0, 0)
    ([0.005, 0.043], None)
    """
    if not of:
        return None
    share = found / of
    center = (share + Z * Z / (2 * of)) / (1 + Z * Z / of)
    half = Z * math.sqrt(share * (1 - share) / of + Z * Z / (4 * of * of)) / (1 + Z * Z / of)
    return max(0.0, center - half), min(1.0, center + half)
