"""Versions of a model's weights, and how many versions old some weights are.

A version is a text that the trainer chooses. The number at its end, such as a step, is compared: ``12``,
``step-12``, ``v12``. Two texts without a number count as equal or as one version apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"(\d+)$")


def staleness(used: Sequence[str], current: Sequence[str]) -> int:
    """How many versions older the oldest of ``used`` is than the newest of ``current`` and ``used``.

    >>> staleness(["step-7", "step-9"], ["step-10"]), staleness(["a"], ["a"]), staleness(["a"], ["b"])
    (3, 0, 1)
    >>> staleness(["3"], [])
    0
    """
    known = [version for version in (*used, *current) if version]
    numbers = [int(found[1]) for version in known if (found := _NUMBER.search(version))]
    if used and len(numbers) == len(known):
        oldest = min(int(found[1]) for version in used if version and (found := _NUMBER.search(version)))
        return max(numbers) - oldest
    return int(len(set(known)) > 1)
