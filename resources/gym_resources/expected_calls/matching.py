"""The largest set of pairs, where everything is paired at most once.

A greedy choice would not do: it may use up the only partner of another element.
Source: augmenting paths (Berge 1957; Kuhn 1955).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def largest_matching(left: Sequence[A], right: Sequence[B], fits: Callable[[A, B], bool]) -> int:
    """How many of ``left`` can be paired with one of ``right`` that fits, each with its own.

    Takes ``len(left) * len(right)`` calls of ``fits``, and recursion as deep as ``left`` is long.

    >>> largest_matching([1, 2], [2, 3], lambda one, other: one <= other)
    2
    """
    partners = [[j for j, other in enumerate(right) if fits(one, other)] for one in left]
    owner: dict[int, int] = {}

    def place(i: int, tried: set[int]) -> bool:
        for j in partners[i]:
            if j not in tried:
                tried.add(j)
                if j not in owner or place(owner[j], tried):
                    owner[j] = i
                    return True
        return False

    return sum(place(i, set()) for i in range(len(left)))
