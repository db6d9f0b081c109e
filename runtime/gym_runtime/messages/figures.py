"""The cumulative figures of a worker, or of a run's client, since it began.

They travel in the heartbeat with which a member answers ``alive.<kind>.<worker>``, and those of a run stay in
its `gym_runtime.messages.run_info.RunInfo` when it is over. What a metric's name and labels mean is in
`gym_runtime.messages.metric_names`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gym_runtime.messages.metric_names import Metric
from gym_runtime.statistics import bounded


class Count(msgspec.Struct, frozen=True, array_like=True):
    """One counter; ``labels`` are the values of the metric's labels, in its order."""

    name: str
    labels: tuple[str, ...]
    value: float | int


class Distribution(msgspec.Struct, frozen=True, array_like=True):
    """One histogram.

    Attributes:
        buckets: observations in each bucket, not cumulative; buckets at the end that are empty are left out.
        total: the sum of the observations; at most the largest double, because JSON has no infinity.
    """

    name: str
    labels: tuple[str, ...]
    buckets: tuple[int, ...]
    total: float = 0.0

    @property
    def count(self) -> int:
        """How many observations there are."""
        return sum(self.buckets)

    def since(self, before: Distribution) -> Distribution:
        """The observations since an earlier reading of the same histogram."""
        width = max(len(self.buckets), len(before.buckets))
        buckets = [a - b for a, b in zip(_wide(self, width), _wide(before, width), strict=True)]
        return Distribution(self.name, self.labels, tuple(buckets), bounded(self.total - before.total))

    def quantile(self, share: float, bounds: Sequence[float]) -> float | None:
        """An estimate of a quantile, linear within a bucket; None if nothing was observed.

        Args:
            share: 0.5 for the median.
            bounds: the metric's. A quantile above the last one is given as the last one.
        """
        place = share * self.count
        if not self.count:
            return None
        passed, low = 0, 0.0
        for size, high in zip(self.buckets, bounds, strict=False):
            if size and passed + size >= place:
                return low + (high - low) * (place - passed) / size
            passed, low = passed + size, high
        return bounds[-1]


class Figures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Cumulative figures.

    Attributes:
        since_s: when counting began, in seconds since the epoch by the counter's clock.
        cpu_s: processor time of the process, in seconds.
        memory_bytes: its resident memory, now.
    """

    counts: list[Count] = []
    distributions: list[Distribution] = []
    since_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0

    def total(self, metric: Metric, where: Mapping[str, str] | None = None) -> float:
        """A counter's sum over all label values, or over the values that ``where`` names."""
        return sum(
            one.value for one in self.counts if one.name == metric.name and _fits(metric, one.labels, where)
        )

    def distribution(self, metric: Metric, where: Mapping[str, str] | None = None) -> Distribution:
        """A histogram, summed as `total`; its labels are empty."""
        found = Distribution(metric.name, (), ())
        for one in self.distributions:
            if one.name == metric.name and _fits(metric, one.labels, where):
                found = _added(found, one)
        return found


def merged(several: Sequence[Figures]) -> Figures:
    """The sum of figures, label by label."""
    counts: dict[tuple[str, tuple[str, ...]], float] = {}
    distributions: dict[tuple[str, tuple[str, ...]], Distribution] = {}
    for figures in several:
        for count in figures.counts:
            key = (count.name, count.labels)
            counts[key] = counts.get(key, 0) + count.value
        for one in figures.distributions:
            key = (one.name, one.labels)
            distributions[key] = _added(distributions[key], one) if key in distributions else one
    return Figures(
        counts=[Count(name, labels, value) for (name, labels), value in counts.items()],
        distributions=list(distributions.values()),
        cpu_s=sum(figures.cpu_s for figures in several),
        memory_bytes=sum(figures.memory_bytes for figures in several),
    )


def _fits(metric: Metric, labels: tuple[str, ...], where: Mapping[str, str] | None) -> bool:
    values = dict(zip(metric.labels, labels, strict=False))
    return all(values.get(name) == value for name, value in (where or {}).items())


def _wide(one: Distribution, width: int) -> list[int]:
    return [*one.buckets, *[0] * (width - len(one.buckets))]


def _added(a: Distribution, b: Distribution) -> Distribution:
    width = max(len(a.buckets), len(b.buckets))
    buckets = map(sum, zip(_wide(a, width), _wide(b, width), strict=True))
    return Distribution(a.name, a.labels, tuple(buckets), bounded(a.total + b.total))
