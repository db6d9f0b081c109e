"""Statistics over rewards and other numbers of rollouts, by the definitions that NeMo Gym reports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import fmean

STATISTICS = ("mean", "max", "min", "median", "std")


def describe(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Mean, maximum, minimum, median and sample standard deviation (0 for a single value).

    >>> describe([1.0, 2.0, 4.0, 5.0])
    (3.0, 5.0, 1.0, 3.0, 1.8257418583505538)
    """
    count = len(values)
    if count == 1:
        only = values[0]
        return only, only, only, only, 0.0
    ordered = sorted(values)
    mean = fmean(ordered)
    middle = count // 2
    median = ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    try:
        # `fsum`: exact, so that the result does not depend on the order in which rollouts came.
        spread = math.sqrt(math.fsum((value - mean) ** 2 for value in ordered) / (count - 1))
    except OverflowError:  # rewards of 1e200 have no squares; hypot scales them, and rounds otherwise
        spread = math.hypot(*(value - mean for value in ordered)) / math.sqrt(count - 1)
    return mean, ordered[-1], ordered[0], median, spread


# Groups of one size with as many wrong answers come again and again.
@lru_cache(maxsize=4096)
def chance_of_pass(count: int, wrong: int, k: int) -> float:
    """That at least one of ``k`` rollouts, drawn without replacement from ``count``, is right.

    Source: Chen et al., "Evaluating Large Language Models Trained on Code", 2021, equation 1.
    """
    # Whole numbers, which Python keeps exact however large they are; only the quotient is a float.
    return 1.0 - math.comb(wrong, k) / math.comb(count, k)


def group_pass(rewards: Sequence[float], k: int) -> float:
    """pass@k of one group of at least ``k`` rewards, 0 to 1.

    Where all rewards are 0 or 1 it is the unbiased estimate from all of them, otherwise the best of the
    first ``k``.

    >>> group_pass([0.0, 1.0, 0.0, 0.0], 2)
    0.5
    """
    if all(reward in (0.0, 1.0) for reward in rewards):
        return chance_of_pass(len(rewards), sum(1 for reward in rewards if not reward), k)
    return max(rewards[:k])


class PassScores:
    """pass@k and pass@1[avg-of-k] over groups of rewards, 0 to 1, for all ``k`` at once.

    A group with fewer than ``k`` rollouts does not count for pass@k; for avg-of-k it counts with what it
    has.
    """

    def __init__(self, ks: Iterable[int]) -> None:
        self._ks = tuple(ks)
        self._passes = dict.fromkeys(self._ks, 0.0)
        self._means = dict.fromkeys(self._ks, 0.0)
        self._large_enough = dict.fromkeys(self._ks, 0)
        self.groups = 0

    def add(self, rewards: Sequence[float]) -> None:
        """Take one group in; its rewards stand in the order of its rollouts."""
        self.groups += 1
        for k in self._ks:
            self._means[k] += fmean(rewards[:k])
            if len(rewards) >= k:
                self._passes[k] += group_pass(rewards, k)
                self._large_enough[k] += 1

    @property
    def pass_at(self) -> dict[int, float]:
        """pass@k by ``k``, where there is a group of that size."""
        return {k: self._passes[k] / count for k, count in self._large_enough.items() if count}

    @property
    def mean_of_first(self) -> dict[int, float]:
        """pass@1[avg-of-k] by ``k``."""
        return {k: total / self.groups for k, total in self._means.items()} if self.groups else {}


def steps(most: int) -> list[int]:
    """The ``k`` that are reported for groups of up to ``most`` rollouts: powers of two, and ``most``.

    >>> steps(12)
    [1, 2, 4, 8, 12]
    """
    return sorted({2**power for power in range(most.bit_length())} | {most}) if most > 0 else []
