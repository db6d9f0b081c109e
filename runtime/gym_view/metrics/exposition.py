"""Figures as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from gym_runtime.messages import METRICS, Count, Distribution, Figures, Metric, prometheus_name
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(figures: Figures) -> bytes:
    """All metrics in Prometheus's text format; those without a value yet have their help text only."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(figures))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Family]:
        return families(self._figures)


def families(figures: Figures) -> Iterator[Family]:
    """One family for each metric."""
    counts: dict[str, list[Count]] = {}
    distributions: dict[str, list[Distribution]] = {}
    for count in figures.counts:
        counts.setdefault(count.name, []).append(count)
    for one in figures.distributions:
        distributions.setdefault(one.name, []).append(one)
    for metric in METRICS:
        name, labels = prometheus_name(metric), [label.replace(".", "_") for label in metric.labels]
        if metric.kind == "histogram":
            family = HistogramMetricFamily(name, metric.about, labels=labels)
            for one in distributions.get(metric.name, ()):
                family.add_metric(_values(metric, one.labels), _buckets(metric, one), one.total)
            yield family
        else:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            values = kind(name, metric.about, labels=labels)
            for count in counts.get(metric.name, ()):
                values.add_metric(_values(metric, count.labels), count.value)
            yield values


def _values(metric: Metric, labels: tuple[str, ...]) -> list[str]:
    """As many as the metric has labels: a worker of another version may have more, or fewer."""
    return [*labels, *("" for _ in metric.labels)][: len(metric.labels)]


def _buckets(metric: Metric, one: Distribution) -> list[tuple[str, float]]:
    # Trailing empty buckets are left out on the way (`rpc.meter`).
    sizes = [*one.buckets, *(0 for _ in metric.bounds), 0][: len(metric.bounds) + 1]
    ends = [*(f"{bound:g}" for bound in metric.bounds), "+Inf"]
    # Prometheus counts in each bucket all that is below its end.
    return list(zip(ends, accumulate(sizes), strict=True))
