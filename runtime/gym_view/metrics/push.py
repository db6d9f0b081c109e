"""Pushes figures to an OpenTelemetry collector, if the standard environment variables name one.

`OTLPMetricExporter` reads the rest of the variables: headers, certificates, compression, time limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread
from gym_runtime import tracing
from gym_runtime.bus import Bus
from gym_runtime.client import background
from gym_runtime.errors import GymError, UsageError
from gym_runtime.messages import METRICS, Figures, Metric
from gym_runtime.timing import EXPORT_STOP_S

from gym_view.metrics.gathering import SystemFigures

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Histogram, MetricsData, Sum
    from opentelemetry.sdk.metrics.export import Metric as Exported

SERVICE = "gym-runtime"
INTERVAL_VARIABLE = "OTEL_METRIC_EXPORT_INTERVAL"


def wanted() -> bool:
    """Whether the environment asks for metrics to be pushed."""
    return tracing.exports("metrics")


@asynccontextmanager
async def pushing(bus: Bus) -> AsyncGenerator[None]:
    """Push the metrics of a system until the context ends, if the environment asks for it."""
    if not wanted():
        yield
        return
    figures = SystemFigures(bus)
    async with background() as tasks:
        tasks.start_soon(figures.follow)
        tasks.start_soon(push, figures.figures)
        try:
            yield
        finally:
            # What is pushed last has everything.
            with anyio.move_on_after(EXPORT_STOP_S, shield=True), suppress(GymError):
                await figures.look()


async def push(figures: Callable[[], Figures]) -> None:
    """Push every minute, or every ``OTEL_METRIC_EXPORT_INTERVAL`` milliseconds, and at the end.

    Raises:
        UsageError: the variable is no number.
    """
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    interval_s = _interval_s()
    exporter = OTLPMetricExporter()
    started_ns = time.time_ns()

    async def once() -> None:
        data = metrics_data(figures(), started_ns, time.time_ns())
        # The exporter logs why an export fails; the next one has the same and more.
        await anyio.to_thread.run_sync(lambda: exporter.export(data), abandon_on_cancel=True)

    try:
        while True:
            await anyio.sleep(interval_s)
            await once()
    finally:
        with anyio.move_on_after(EXPORT_STOP_S, shield=True):
            await once()
        exporter.shutdown()


def metrics_data(figures: Figures, started_ns: int, now_ns: int) -> MetricsData:
    """Figures as the SDK exports them: cumulative since ``started_ns``."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    resource = tracing.resource(SERVICE)
    scope = InstrumentationScope("gym_runtime", schema_url=tracing.SCHEMA_URL)
    metrics = [found for metric in METRICS if (found := _exported(metric, figures, started_ns, now_ns))]
    scoped = ScopeMetrics(scope=scope, metrics=metrics, schema_url=tracing.SCHEMA_URL)
    return MetricsData([ResourceMetrics(resource=resource, scope_metrics=[scoped], schema_url="")])


def _exported(metric: Metric, figures: Figures, started_ns: int, now_ns: int) -> Exported | None:
    """A metric with all of its series; None if it has none."""
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, NumberDataPoint, Sum
    from opentelemetry.sdk.metrics.export import Metric as Exported

    data: Sum | Gauge | Histogram
    if metric.kind == "histogram":
        data = _histogram(metric, figures, started_ns, now_ns)
    else:
        points = [
            NumberDataPoint(_attributes(metric, one.labels), started_ns, now_ns, float(one.value))
            for one in figures.counts
            if one.name == metric.name
        ]
        data = (
            Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
            if metric.kind == "counter"
            else Gauge(points)
        )
    if not data.data_points:
        return None
    return Exported(name=metric.name, description=metric.about, unit=metric.unit, data=data)


def _histogram(metric: Metric, figures: Figures, started_ns: int, now_ns: int) -> Histogram:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Histogram, HistogramDataPoint

    width = len(metric.bounds) + 1
    points = [
        HistogramDataPoint(
            attributes=_attributes(metric, one.labels),
            start_time_unix_nano=started_ns,
            time_unix_nano=now_ns,
            count=one.count,
            sum=one.total,
            # Trailing empty buckets are left out on the way (`rpc.meter`).
            bucket_counts=[*one.buckets, *[0] * width][:width],
            explicit_bounds=metric.bounds,
            # The workers keep no extremes. OTLP leaves them out where they are None.
            min=cast(float, None),
            max=cast(float, None),
        )
        for one in figures.distributions
        if one.name == metric.name
    ]
    return Histogram(points, AggregationTemporality.CUMULATIVE)


def _attributes(metric: Metric, labels: tuple[str, ...]) -> dict[str, str]:
    # A worker of another version may have more labels, or fewer.
    return {name: value for name, value in zip(metric.labels, labels, strict=False) if value}


def _interval_s() -> float:
    said = os.environ.get(INTERVAL_VARIABLE) or "60000"
    try:
        interval_s = float(said) / 1e3
    except ValueError:
        interval_s = 0.0
    # Not `<= 0`: this way NaN is refused as well.
    if not interval_s > 0:
        raise UsageError(f"{INTERVAL_VARIABLE} is {said!r}; it must be a number of milliseconds above 0")
    return interval_s
