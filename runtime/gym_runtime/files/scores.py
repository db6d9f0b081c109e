"""Statistics over rewards and other numbers of rollouts, by the definitions that NeMo Gym reports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from gym_runtime.statistics import Clusters, deviation, finite, mean

STATISTICS = ("mean", "max", "min", "median", "std")


def describe(values: Sequence[float]) -> tuple[float | None, ...]:
    """Mean, maximum, minimum, median and sample standard deviation (0 for a single value) of some values.

    The deviation is None if it is larger than a double.

    >>> describe([1.0, 2.0, 4.0, 5.0])
    (3.0, 5.0, 1.0, 3.0, 1.8257418583505538)
    """
    count = len(values)
    if count == 1:
        only = values[0]
        return only, only, only, only, 0.0
    ordered = sorted(values)
    middle = ordered[(count - 1) // 2 : count // 2 + 1]
    return mean(ordered), ordered[-1], ordered[0], mean(middle), deviation(ordered)


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

    Attributes:
        rewards: all rewards, by group.
        tasks: groups that were added, and those without a reward.
    """

    def __init__(self, ks: Iterable[int]) -> None:
        self._passes = {k: Clusters() for k in ks}
        self._firsts = {k: Clusters() for k in self._passes}
        self.rewards = Clusters()
        self.tasks = 0

    def add(self, rewards: Sequence[float], times: int = 1) -> None:
        """Take ``times`` equal groups in; rewards, if there are any, in the order of the rollouts."""
        self.tasks += times
        self.rewards.add(rewards, times)
        for k, passes in self._passes.items():
            first = mean(rewards[:k])
            if first is not None:
                self._firsts[k].add((first,), times)
            if len(rewards) >= k:
                passes.add((group_pass(rewards, k),), times)

    @property
    def groups(self) -> int:
        """Groups with a reward."""
        return self.rewards.clusters

    @property
    def pass_at(self) -> dict[int, float]:
        """pass@k by ``k``, where there is a group of that size."""
        return _means(self._passes)

    @property
    def pass_error(self) -> dict[int, float | None]:
        """The standard error of pass@k, over tasks; None with one task."""
        return _errors(self._passes)

    @property
    def pass_tasks(self) -> dict[int, int]:
        """How many groups pass@k is computed over: those with ``k`` rewards."""
        return {k: one.clusters for k, one in self._passes.items() if one.clusters}

    @property
    def mean_of_first(self) -> dict[int, float]:
        """pass@1[avg-of-k] by ``k``."""
        return _means(self._firsts)

    @property
    def mean_of_first_error(self) -> dict[int, float | None]:
        """The standard error of pass@1[avg-of-k], over tasks; None with one task."""
        return _errors(self._firsts)


def repeat_means(rewards: Iterable[tuple[int, float]]) -> list[float]:
    """The mean reward of each repeat, from ``(repeat, reward)``; none beyond a double."""
    repeats: dict[int, list[float]] = {}
    for repeat, reward in rewards:
        repeats.setdefault(repeat, []).append(reward)
    return [found for _, one in sorted(repeats.items()) if (found := mean(one)) is not None]


def percent(share: float | None) -> float | None:
    """In percent; None beyond a double."""
    return None if share is None else finite(100.0 * share)


def _means(clusters: Mapping[int, Clusters]) -> dict[int, float]:
    return {k: found for k, one in clusters.items() if (found := one.mean) is not None}


def _errors(clusters: Mapping[int, Clusters]) -> dict[int, float | None]:
    return {k: one.standard_error for k, one in clusters.items() if one.clusters}


def steps(most: int) -> list[int]:
    """The ``k`` that are reported for groups of up to ``most`` rollouts: powers of two, and ``most``.

    >>> steps(12)
    [1, 2, 4, 8, 12]
    """
    return sorted({2**power for power in range(most.bit_length())} | {most}) if most > 0 else []
