"""Figures: sums over labels, differences of readings, quantiles, and the names that Prometheus sees."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from sys import float_info

import msgspec
from gym_runtime.messages import metric_names
from gym_runtime.messages.metric_names import METRICS, Count, Distribution, Figures, merged, prometheus_name
from gym_runtime.rpc.meter import MOST_SERIES, OTHER, Meter, process_figures
from hypothesis import given
from hypothesis import strategies as st

ROLLOUTS = metric_names.ROLLOUTS
REWARD = metric_names.ROLLOUT_REWARD


def test_a_counter_is_summed_over_the_labels_that_are_not_named() -> None:
    meter = Meter()
    meter.add(ROLLOUTS, "mcqa", "completed", "", "", by=3)
    meter.add(ROLLOUTS, "mcqa", "failed", "ResourceError", "verify")
    meter.add(ROLLOUTS, "calendar", "completed", "", "")
    figures = meter.figures()
    assert figures.total(ROLLOUTS) == 5
    assert figures.total(ROLLOUTS, {"gym.environment": "mcqa"}) == 4
    assert figures.total(ROLLOUTS, {"gym.outcome": "completed"}) == 4
    assert figures.total(metric_names.ROLE_CALLS) == 0


def test_a_histogram_puts_a_bound_into_the_bucket_that_it_ends() -> None:
    meter = Meter()
    for reward in (-1.0, 0.0, 0.5, 1.0, 7.0):
        meter.observe(REWARD, reward, "mcqa")
    (found,) = meter.figures().distributions
    assert found.buckets == (2, 0, 0, 1, 0, 0, 0, 1, 1)
    assert found.total == 7.5
    assert found.count == 5


def test_large_observations_travel() -> None:
    meter = Meter()
    for _ in range(2):
        meter.observe(REWARD, 1e308, "mcqa")
    figures = merged([meter.figures(), meter.figures()])
    assert msgspec.json.decode(msgspec.json.encode(figures), type=Figures) == figures
    assert figures.distribution(REWARD).total == float_info.max


def test_merged_figures_are_the_sum_label_by_label() -> None:
    a = Figures(
        counts=[Count("a", ("x",), 1), Count("a", ("y",), 2)],
        distributions=[Distribution("d", (), (1,), 0.5)],
        cpu_s=1.0,
    )
    b = Figures(counts=[Count("a", ("x",), 10)], distributions=[Distribution("d", (), (1, 0, 4), 2.0)])
    assert merged([a, b]) == Figures(
        counts=[Count("a", ("x",), 11), Count("a", ("y",), 2)],
        distributions=[Distribution("d", (), (2, 0, 4), 2.5)],
        cpu_s=1.0,
    )
    assert merged([]) == Figures()


def test_the_difference_of_two_readings_is_what_came_between() -> None:
    before, after = Distribution("d", (), (1,), 0.5), Distribution("d", (), (1, 2), 3.5)
    assert after.since(before) == Distribution("d", (), (0, 2), 3.0)


@given(st.lists(st.floats(0.0, 80.0), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    meter = Meter()
    for value in values:
        meter.observe(metric_names.HOP_DURATION, value, "model", "mcqa")
    bounds = metric_names.SHORT_S
    estimate = meter.figures().distribution(metric_names.HOP_DURATION).quantile(share, bounds)
    assert estimate is not None
    true = sorted(values)[math.ceil(share * len(values)) - 1]
    bucket = bisect_left(bounds, true)
    assert [0.0, *bounds][bucket] - 1e-9 <= estimate <= bounds[bucket] + 1e-9


def test_without_observations_there_is_no_quantile() -> None:
    assert Figures().distribution(REWARD).quantile(0.5, REWARD.bounds) is None


def test_labels_without_end_are_counted_together() -> None:
    meter = Meter()
    for number in range(MOST_SERIES + 10):
        meter.add(metric_names.REFUSED, str(number))
        meter.observe(REWARD, 0.0, str(number))
    figures = meter.figures()
    assert figures.total(metric_names.REFUSED) == MOST_SERIES + 10
    assert figures.total(metric_names.REFUSED, {"gym.worker.kind": OTHER}) == 10
    assert figures.distribution(REWARD, {"gym.environment": OTHER}).count == 10


def test_a_process_knows_its_own_size() -> None:
    cpu_s, memory_bytes = process_figures()
    assert cpu_s > 0
    assert 2**20 < memory_bytes < 2**36


def test_names_are_unique_and_valid_for_prometheus() -> None:
    names = [prometheus_name(metric) for metric in METRICS]
    assert len(set(names)) == len(names) > 20
    for metric, name in zip(METRICS, names, strict=True):
        assert re.fullmatch(r"[a-z][a-z_]*[a-z]", name), name
        assert metric.about
        assert (metric.kind == "histogram") == bool(metric.bounds)
        assert list(metric.bounds) == sorted(metric.bounds)


def test_no_label_is_an_id() -> None:
    labels = {label for metric in METRICS for label in metric.labels}
    assert not [label for label in labels if re.search(r"\b(id|run|task|rollout|worker)$", label)]
