"""Counting within one process, cheaply: plain numbers, read only when a heartbeat is sent.

OpenTelemetry's own instruments cost 10 µs for each observation, which would be several percent of a rollout.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from contextlib import suppress

from gym_runtime import clock
from gym_runtime.messages.metric_names import Count, Distribution, Figures, Metric
from gym_runtime.statistics import bounded

MOST_SERIES = 4096
"""Labels have few values. If a fault breaks that rule, further series are counted together as `OTHER`: a
metric must not fill the memory of a worker or of its readers."""
OTHER = "other"

# `os.sysconf` is missing on Windows.
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class _Histogram:
    __slots__ = ("buckets", "total")

    def __init__(self, metric: Metric) -> None:
        self.buckets = [0] * (len(metric.bounds) + 1)
        self.total = 0.0


class Meter:
    """The figures of one worker, or of one run. Not thread-safe.

    Args:
        since_s: when the counting began, in seconds since the epoch; by default now. If two figures of one
            origin have the same start, the larger ones count.
    """

    def __init__(self, since_s: float = 0.0) -> None:
        self._since_s = since_s or clock.now()
        self._counts: dict[tuple[str, tuple[str, ...]], float] = {}
        self._histograms: dict[tuple[str, tuple[str, ...]], _Histogram] = {}

    def add(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """Increase a counter. ``labels`` are values, in the metric's order."""
        key = (metric.name, labels)
        if key not in self._counts:
            key = _bounded(key, len(self._counts))
        self._counts[key] = self._counts.get(key, 0) + by

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Put a value into a histogram; ``labels`` as for `add`."""
        key = (metric.name, labels)
        histogram = self._histograms.get(key)
        if histogram is None:
            key = _bounded(key, len(self._histograms))
            histogram = self._histograms.setdefault(key, _Histogram(metric))
        histogram.buckets[bisect_left(metric.bounds, value)] += 1
        histogram.total = bounded(histogram.total + value)

    def figures(self) -> Figures:
        """All figures until now."""
        return Figures(
            counts=[Count(name, labels, value) for (name, labels), value in self._counts.items()],
            distributions=[
                Distribution(name, labels, _trimmed(one.buckets), round(one.total, 6))
                for (name, labels), one in self._histograms.items()
            ],
            since_s=self._since_s,
        )


def process_figures() -> tuple[float, int]:
    """Processor time in seconds, and resident memory in bytes, of this process; 0 where it is not known."""
    memory_bytes = 0
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as pages:
        # The second field of statm is the resident size, in pages.
        memory_bytes = int(pages.read().split()[1]) * _PAGE_BYTES
    return round(time.process_time(), 3), memory_bytes


def _bounded(key: tuple[str, tuple[str, ...]], known: int) -> tuple[str, tuple[str, ...]]:
    return key if known < MOST_SERIES else (key[0], (OTHER,) * len(key[1]))


def _trimmed(buckets: list[int]) -> tuple[int, ...]:
    # Trailing empty buckets are most of a distribution; without this each heartbeat would carry them.
    used = max((place + 1 for place, size in enumerate(buckets) if size), default=0)
    return tuple(buckets[:used])
