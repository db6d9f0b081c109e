"""The page's figures of a run: computed here, so the page and the commands have one set of rules.

The page itself only selects: which rows a filter leaves, and how many of them a bar has.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from gym_runtime.files import PassScores
from gym_runtime.statistics import Clusters, bounded, deviation, mean

from gym_view.index import IndexedRow
from gym_view.index_entry import OUTCOMES, IndexEntry
from gym_view.indexing import indexed
from gym_view.run_comparison import Means, means_of
from gym_view.run_figures import GroupFigures, Groups, Reader, RunFigures, figures_of, rows_of
from gym_view.run_files import Run

_BARS = 20
_EXACT_VALUES = 12
_POINTS = 40
_POINT_ROWS = 5
_LEAST_WIDTH = 5e-324


class Bar(msgspec.Struct, frozen=True, array_like=True):
    """How many values are in ``low`` to ``high``, without ``high``; if ``exact``, how many are ``low``."""

    low: float
    high: float
    count: int
    exact: bool


class Spread(msgspec.Struct, frozen=True):
    """How a number of the rollouts is spread; half of them have at most ``half``, 99 % at most ``most``."""

    bars: list[Bar]
    half: float | None
    most: float | None


class TaskFigures(msgspec.Struct, frozen=True, array_like=True):
    """One task.

    ``kind`` is `GroupFigures.kind`; ``spread`` the sample deviation of the rewards; ``passed`` its pass@1
    (`gym_runtime.files.PassScores`), None if a reward is no share; ``tokens`` the mean output of a rollout.
    """

    environment: str
    task: int
    kind: str
    mean: float | None
    spread: float
    passed: float | None
    tokens: float


class EnvironmentFigures(msgspec.Struct, frozen=True):
    """One environment of a run; the mean is over its rewards, the standard error clustered by task."""

    environment: str
    rollouts: int
    mean: float | None
    error: float | None


class Ending(msgspec.Struct, frozen=True):
    """Rollouts that ended alike. ``fault`` is `IndexEntry.fault`; ``first`` and ``last`` are TASK.ROLLOUT."""

    outcome: str
    fault: str
    environments: list[str]
    first: str
    last: str
    count: int


class Point(msgspec.Struct, frozen=True, array_like=True):
    """The mean reward of neighbouring rows of the file of rollouts, by their numbers from 0.

    ``error`` is its standard error, clustered by task.
    """

    first: int
    last: int
    mean: float | None
    error: float | None


class Tries(msgspec.Struct, frozen=True):
    """pass@k by ``k`` with its standard error, for all ``k`` over the same tasks: those with most rewards.

    Over all tasks that have ``k`` rewards, as in `RunFigures`, pass@3 of a run that is going on may be below
    its pass@1: other tasks are finished.
    """

    tasks: int
    pass_at: dict[int, float]
    pass_error: dict[int, float | None]


class PageFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A run's figures and everything that is drawn of it; ``rated`` is the number of rewards."""

    run: RunFigures
    rated: int
    tasks: list[TaskFigures]
    environments: list[EnvironmentFigures]
    endings: list[Ending]
    course: list[Point]
    spreads: dict[str, Spread]
    tries: Tries


class _Alike(msgspec.Struct):
    """Rollouts that ended alike; their environments in the order in which they come."""

    first: IndexEntry
    last: IndexEntry
    environments: dict[str, None]
    count: int = 0


class _Kept:
    """The drawn values that `RunFigures` lacks, row by row."""

    def __init__(self) -> None:
        self.numbers = {name: array("d") for name in ("reward", "out", "turns", "time")}
        self.course: list[tuple[tuple[str, int], float]] = []
        self._alike: dict[tuple[int, str], _Alike] = {}

    def rows(self, run: Run, read: Reader) -> Iterator[IndexedRow]:
        reward, out, turns, time = (numbers.append for numbers in self.numbers.values())
        for path, row in rows_of(run, read):
            entry = row.entry
            if path is run.rollouts:
                self.course.append(((entry.environment, entry.task), entry.reward))
            reward(entry.reward)
            out(entry.output_tokens)
            turns(entry.turns)
            time(entry.duration_s)
            alike = self._alike.get((entry.outcome, entry.fault))
            if alike is None:
                alike = self._alike[entry.outcome, entry.fault] = _Alike(entry, entry, {})
            alike.last = entry
            alike.environments[entry.environment] = None
            alike.count += 1
            yield row

    @property
    def endings(self) -> list[Ending]:
        found = [
            Ending(
                outcome=OUTCOMES[outcome],
                fault=fault,
                environments=list(alike.environments),
                first=f"{alike.first.task}.{alike.first.rollout}",
                last=f"{alike.last.task}.{alike.last.rollout}",
                count=alike.count,
            )
            for (outcome, fault), alike in self._alike.items()
        ]
        return sorted(found, key=lambda one: -one.count)


def page_figures(run: Run, read: Reader = indexed) -> PageFigures:
    """Everything that the page draws of a run, from its rows."""
    return page_figures_and_means(run, read)[0]


def page_figures_and_means(run: Run, read: Reader) -> tuple[PageFigures, Means]:
    """As `page_figures`, and what a comparison needs: the rows are read once."""
    kept = _Kept()
    figures, groups = figures_of(kept.rows(run, read), failures_as_zero=run.failures_as_zero)
    environments: dict[str, tuple[list[int], Counter[tuple[float, ...]]]] = {}
    tasks: list[TaskFigures] = []
    for group in groups.values():
        rewards = group.ordered
        tasks.append(_task(group, rewards))
        counted, alike = environments.setdefault(group.environment, ([], Counter()))
        counted.append(len(group.spent))
        alike[rewards] += 1
    drawn = PageFigures(
        run=figures,
        rated=sum(len(group.rewards) for group in groups.values()),
        tasks=tasks,
        environments=sorted(
            (_environment(name, sum(counted), alike) for name, (counted, alike) in environments.items()),
            key=lambda one: -one.rollouts,
        ),
        endings=kept.endings,
        course=list(_course(kept.course)),
        spreads={name: spread(numbers) for name, numbers in kept.numbers.items()},
        tries=_tries(figures, groups),
    )
    return drawn, means_of(groups)


def _environment(name: str, rollouts: int, alike: Mapping[tuple[float, ...], int]) -> EnvironmentFigures:
    rewards = Clusters()
    for values, times in alike.items():
        rewards.add(values, times)
    return EnvironmentFigures(name, rollouts, rewards.mean, rewards.standard_error)


def _tries(figures: RunFigures, groups: Groups) -> Tries:
    ks = sorted(figures.pass_at)
    if ks and figures.pass_tasks[1] == figures.pass_tasks[ks[-1]]:  # all have as many rewards
        return Tries(figures.pass_tasks[1], figures.pass_at, figures.pass_error)
    scores = PassScores(ks)
    for group in groups.values():
        if ks and len(group.rewards) >= ks[-1]:
            scores.add(group.ordered)
    return Tries(scores.tasks, scores.pass_at, scores.pass_error)


def _task(group: GroupFigures, rewards: Sequence[float]) -> TaskFigures:
    passed = None
    if rewards and all(0 <= reward <= 1 for reward in rewards):
        passed = mean(rewards) if set(rewards) <= {0.0, 1.0} else rewards[0]  # as in the run's pass@1
    spread_ = deviation(rewards) if group.kind == "mixed" else 0.0
    return TaskFigures(
        environment=group.environment,
        task=group.task,
        kind=group.kind,
        mean=mean(rewards),
        spread=math.inf if spread_ is None else spread_,
        passed=passed,
        tokens=sum(tokens for _, tokens in group.spent) / len(group.spent),
    )


def _course(rewards: Sequence[tuple[tuple[str, int], float]]) -> Iterator[Point]:
    """Means of neighbouring rewards, at most `_POINTS` of them: how it changed in the course of a run."""
    size = max(_POINT_ROWS, math.ceil(len(rewards) / _POINTS))
    for first in range(0, len(rewards), size):
        some = rewards[first : first + size]
        by_task: dict[tuple[str, int], list[float]] = {}
        for task, reward in some:
            if reward == reward:
                by_task.setdefault(task, []).append(reward)
        clusters = Clusters()
        for values in by_task.values():
            clusters.add(values)
        yield Point(first, first + len(some) - 1, clusters.mean, clusters.standard_error)


def spread(values: Iterable[float]) -> Spread:
    """The bars of a histogram and two quantiles. NaN is left out.

    >>> spread([0.0, 1.0, 1.0]).bars
    [Bar(low=0.0, high=0.0, count=1, exact=True), Bar(low=1.0, high=1.0, count=2, exact=True)]
    """
    ordered = sorted(value for value in values if value == value)
    if not ordered:
        return Spread([], None, None)
    half, most = (ordered[int(share * len(ordered))] for share in (0.5, 0.99))
    return Spread(list(_bars(ordered)), half, most)


def _bars(ordered: Sequence[float]) -> Iterator[Bar]:
    """One for each value where there are few, else of equal width with round borders."""
    exact = _counted(ordered, _EXACT_VALUES)
    if exact is not None:
        for value, count in exact.items():
            yield Bar(value, value, count, exact=True)
        return
    width = _round_width(ordered[-1] / _BARS - ordered[0] / _BARS)
    start = math.floor(ordered[0] / width)
    counts = [0] * (math.floor(ordered[-1] / width) - start + 1)
    for value in ordered:
        counts[math.floor(value / width) - start] += 1
    for number, count in enumerate(counts, start):
        yield Bar(_rounded(number * width), _rounded((number + 1) * width), count, exact=False)


def _counted(values: Iterable[float], most: int) -> dict[float, int] | None:
    """How often each value occurs; None if there are more than ``most`` different values."""
    counts: dict[float, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
        if len(counts) > most:
            return None
    return counts


def _round_width(least: float) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten that is not smaller."""
    power = 10.0 ** math.floor(math.log10(least)) if least else 0.0
    widths = (factor * power for factor in (1, 2, 2.5, 5, 10))
    return next((width for width in widths if width >= least * 0.9999 and width), _LEAST_WIDTH)


def _rounded(value: float) -> float:
    return bounded(float(f"{value:.10g}"))
