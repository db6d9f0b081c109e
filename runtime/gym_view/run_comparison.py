"""Two runs, task by task: who wins, by how much, and whether that could be chance."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import msgspec
from gym_runtime.statistics import bounded, difference, mean

from gym_view.run_figures import Groups

_WORK = 2_000_000
FEWEST = 6
"""With so many differences, all of one sign, chance is an unlikely reason: 3 % of cases."""


class TaskMean(msgspec.Struct, frozen=True, gc=False):
    """The mean reward of a task that has one; ``key`` is the prompt's (`IndexEntry.key`)."""

    environment: str
    task: int
    key: int
    mean: float


Means = Mapping[tuple[str, int], TaskMean]
"""By environment and task."""


class Pair(msgspec.Struct, frozen=True):
    """A task that both runs have rewards for; its environment and index may be others in the second run.

    ``difference`` is second minus first; None beyond a double.
    """

    environment: str
    environment_b: str
    task_a: int
    task_b: int
    mean_a: float
    mean_b: float
    difference: float | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A paired comparison over tasks; each task counts once, with its mean reward.

    Attributes:
        joined_by: ``task index`` or ``prompt``.
        other_prompts: how many of the common tasks have another prompt in the second run.
        only_a, only_b: tasks with rewards that the other run has none for.
        wins, losses, ties: tasks in which the second run's mean reward is higher, lower, equal.
        difference: mean of second minus first; None without common tasks, or if one of a task is None.
        low, high: 95 % interval of the difference (`bootstrap`); None as the difference is, and with one
            task, which says nothing of others.
        pairs: by environment and task of the first run.
    """

    joined_by: str
    other_prompts: int
    only_a: int
    only_b: int
    wins: int
    losses: int
    ties: int
    difference: float | None
    low: float | None
    high: float | None
    resamples: int
    pairs: list[Pair]


def means_of(groups: Groups) -> Means:
    """What a comparison needs of a run."""
    return {
        where: TaskMean(group.environment, group.task, group.key, group.mean)
        for where, group in groups.items()
        if group.rewards
    }


def compare(a: Means, b: Means) -> Comparison:
    """Join the tasks of two runs and compare them.

    Tasks are joined by environment and index; when the prompts of these differ and no run has a prompt
    twice, by prompt, also if the environments' names differ. Runs of one environment each are joined by
    index, too, if the prompts are the same: a guest's settings are a part of its name.
    """
    joined_by, found = _joined(a, b)
    pairs = sorted(
        (_pair(one, other) for one, other in found),
        key=lambda pair: (pair.environment, pair.task_a),
    )
    differences = [one for pair in pairs if (one := pair.difference) is not None]
    if len(differences) < len(pairs):
        differences = []
    low, high, resamples = bootstrap(differences)
    wins = sum(pair.mean_b > pair.mean_a for pair in pairs)
    losses = sum(pair.mean_b < pair.mean_a for pair in pairs)
    return Comparison(
        joined_by=joined_by,
        other_prompts=sum(one.key != other.key for one, other in found),
        only_a=len(a) - len(pairs),
        only_b=len(b) - len(pairs),
        wins=wins,
        losses=losses,
        ties=len(pairs) - wins - losses,
        difference=mean(differences),
        low=low,
        high=high,
        resamples=resamples,
        pairs=pairs,
    )


def _pair(a: TaskMean, b: TaskMean) -> Pair:
    return Pair(a.environment, b.environment, a.task, b.task, a.mean, b.mean, difference(b.mean, a.mean))


def _joined(a: Means, b: Means) -> tuple[str, list[tuple[TaskMean, TaskMean]]]:
    by_index = [(group, b[where]) for where, group in a.items() if where in b]
    if by_index and all(one.key == other.key for one, other in by_index):
        return "task index", by_index
    keys_a = {group.key: group for group in a.values() if group.key}
    keys_b = {group.key: group for group in b.values() if group.key}
    if len(keys_a) == len(a) and len(keys_b) == len(b):
        by_key = [(group, keys_b[key]) for key, group in keys_a.items() if key in keys_b]
        if by_key:
            return "prompt", by_key
    if not by_index and len({group.environment for group in a.values()}) == 1:
        at_b = {group.task: group for group in b.values()}
        found = [(one, at_b[one.task]) for one in a.values() if one.task in at_b]
        if len(at_b) == len(b) and all(one.key == other.key != 0 for one, other in found):
            return "task index", found
    return "task index", by_index


def bootstrap(values: Sequence[float]) -> tuple[float | None, float | None, int]:
    """The ends of a 95 % interval of the mean, from means of ``values`` drawn with replacement; and how many.

    The percentiles of these means lie too close together for few values: with 8 the interval would miss the
    true mean in 15 of 100 cases. So their distances from the mean are multiplied by ``t sqrt(n / (n - 1)) /
    z``, with Student's quantile ``t`` and the normal one ``z``. Where fewer than `FEWEST` values are not 0,
    the interval holds 0: chance gives all of five the same sign in more than 5 % of cases.

    The draws are the same each time.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13; Hesterberg, "What
    Teachers Should Know About the Bootstrap", 2015, section 4.1.
    """
    count = len(values)
    if count < 2:
        return None, None, 0
    resamples = max(200, min(2000, _WORK // count))
    # The sum of large values is no double; of smaller ones it is, and a power of two changes no digit.
    unit = 1.0 if max(map(abs, values)) < 2.0**900 else 2.0**64
    scaled = [value / unit for value in values]
    draw = random.Random(0)
    means = [math.fsum(draw.choices(scaled, k=count)) / count for _ in range(resamples)]
    means.sort()
    center, wider = mean(scaled) or 0.0, _wider(count)
    found = (means[int(0.025 * resamples)], means[-int(0.025 * resamples) - 1])
    low, high = (bounded((center + wider * (end - center)) * unit) for end in found)
    if sum(value != 0 for value in values) < FEWEST:
        low, high = min(low, 0.0), max(high, 0.0)
    return low, high, resamples


def _wider(count: int) -> float:
    """``t sqrt(n / (n - 1)) / z``, with three terms of Student's quantile after the normal one.

    >>> round(_wider(8), 3), round(_wider(1000), 3)
    (1.289, 1.002)
    """
    if count < FEWEST:
        return 1.0
    z, freedom = 1.959963984540054, count - 1
    t = (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
    return t * math.sqrt(count / freedom) / z
