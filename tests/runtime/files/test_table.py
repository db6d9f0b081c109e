"""Standard errors, the tasks that figures are of, failures as zero, and numbers of any size in metrics."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.files.sample import sample_row
from gym_runtime.messages.outcomes import Cancelled, RolloutRecord
from hypothesis import example, given
from hypothesis import strategies as st

Record = Callable[..., RolloutRecord]


def filled(*records: RolloutRecord) -> Metrics:
    metrics = Metrics()
    for record in records:
        metrics.add(record)
    return metrics


def aggregate(metrics: Metrics) -> list[dict[str, Any]]:
    return json.loads(b"".join(metrics.aggregate()))


def test_the_file_has_standard_errors_and_says_of_how_many_tasks_it_is(
    record: Record, failure: Record
) -> None:
    # Tasks 0 and 1 have two rewards, task 2 one and a failure, task 3 two failures.
    rewards = [record(0, 0), record(0, 1), record(1, 0, reward=0.0), record(1, 1), record(2, 0, reward=0.0)]
    metrics = filled(*rewards, failure(2, 1), failure(3, 0), failure(3, 1))
    (entry,) = aggregate(metrics)
    assert entry["tasks"] == {"all": 4, "rated": 3, "pass@1/reward": 3, "pass@2/reward": 2}
    assert entry["agent_metrics"]["pass@2/reward"] == 100.0
    # Over the tasks' sums 2, 1 and 0 of five rewards, whose mean is 0.6: residuals 0.8, -0.2 and -0.6.
    by_hand = (3 / 2 * (0.64 + 0.04 + 0.36)) ** 0.5 / 5
    errors = entry["standard_errors"]
    assert errors["mean/reward"] == pytest.approx(by_hand)
    assert set(errors) >= {"mean/output_tokens", "pass@1/reward", "pass@1[avg-of-2]/reward"}
    # pass@1 of the tasks is 1, 0.5 and 0.
    assert errors["pass@1/reward"] == pytest.approx(100 * 0.5 / 3**0.5)
    assert errors["pass@2/reward"] == 0.0
    summary = metrics.summary()
    assert (summary.tasks, summary.all_tasks, summary.pass_tasks) == (3, 4, {1: 3, 2: 2})
    assert summary.mean_reward_error == pytest.approx(by_hand)
    assert summary.pass_error == {1: pytest.approx(0.5 / 3**0.5), 2: 0.0}


def test_failures_count_as_zero_where_that_is_asked_for(record: Record, failure: Record) -> None:
    metrics = Metrics(failures_as_zero=True)
    cancelled = record(2, reward=None, outcome=Cancelled())
    for one in (record(0, 0), failure(0, 1), failure(1, 0), failure(1, 1), cancelled):
        metrics.add(one)
    summary = metrics.summary()
    assert (summary.mean_reward, summary.rewarded, metrics.mean_reward) == (0.25, 4, 0.25)
    assert (summary.pass_at, summary.pass_tasks) == ({1: 0.25, 2: 0.5}, {1: 2, 2: 2})
    assert (summary.tasks, summary.all_tasks, summary.failures_as_zero) == (2, 3, True)
    assert summary.outcomes["failed"] == 3
    (entry,) = aggregate(metrics)
    assert entry["failures_as_zero"] is True
    assert entry["agent_metrics"]["mean/reward"] == 0.25
    assert entry["agent_metrics"]["mean/output_tokens"] == 2.0, "nothing but the reward counts"


FINITE = st.floats(allow_nan=False, allow_infinity=False)
ROWS = st.lists(st.tuples(st.integers(0, 3), FINITE, FINITE, FINITE), min_size=1, max_size=12)


@pytest.mark.slow
@given(ROWS)
@example([(0, 1e308, 1.7e308, 1e308), (0, 1e308, 1.7e308, 1e308)])
@example([(0, 1.7e308, 1.7e308, 0.0), (1, -1.7e308, -1.7e308, 0.0)])
def test_rows_of_any_finite_numbers_have_metrics(rows: list[tuple[int, float, float, float]]) -> None:
    metrics = Metrics()
    for number, (task, reward, field, component) in enumerate(rows):
        fields = {"response": {"usage": {"input_tokens": abs(field)}}, "_gym": {"duration_s": abs(field)}}
        numbers = {"reward": reward, "field": field, "reward_components": {"component": component}}
        where = {"_ng_task_index": task, "_ng_rollout_index": number}
        metrics.add_sample(sample_row(msgspec.json.encode(numbers | fields | where)))
    text = b"".join(metrics.aggregate()) + msgspec.json.encode(metrics.summary())
    assert b"NaN" not in text
    assert b"Infinity" not in text
    (entry,) = aggregate(metrics)
    found = entry["agent_metrics"]
    for name, position in (("reward", 1), ("field", 2), ("component", 3)):
        exact = sum((Fraction(row[position]) for row in rows), Fraction()) / len(rows)
        assert found[f"mean/{name}"] == pytest.approx(float(exact), rel=1e-15, abs=1e-323)
    assert metrics.summary().mean_reward == pytest.approx(found["mean/reward"], rel=1e-15, abs=1e-323)


def test_a_component_beyond_a_double_is_left_out(record: Record) -> None:
    line = b'{"_ng_task_index":0,"_ng_rollout_index":0,"reward":1.0,"reward_components":{"x":1e999,"y":2}}'
    assert sample_row(line).numbers == {"reward": 1.0, "y": 2.0}
