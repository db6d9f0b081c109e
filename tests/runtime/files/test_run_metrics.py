"""Metrics as NeMo Gym computes them, from records and from stored rows alike."""

from __future__ import annotations

import json
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from gym_runtime.files.results import failure_row
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.files.sample import Sample, sample_record, sample_row
from gym_runtime.messages.outcomes import Cancelled, RolloutRecord, Truncated

Record = Callable[..., RolloutRecord]


def filled(*records: RolloutRecord) -> Metrics:
    metrics = Metrics()
    for record in records:
        metrics.add(record)
    return metrics


def aggregate(metrics: Metrics) -> list[dict[str, Any]]:
    return json.loads(b"".join(metrics.aggregate()))


def test_the_file_has_nemo_gyms_form(record: Record) -> None:
    metrics = filled(
        record(1, 0, reward=0.0), record(0, 0), record(0, 1, reward=0.5), record(1, 1, reward=0.0)
    )
    (entry,) = aggregate(metrics)
    nemo_gyms = {"agent_ref", "agent_metrics", "key_metrics", "group_level_metrics"}
    assert set(entry) == nemo_gyms | {"standard_errors", "tasks"}
    assert entry["agent_ref"] == {"name": "counting"}
    found = entry["agent_metrics"]
    assert found["mean/reward"] == 0.375
    assert (found["max/reward"], found["min/reward"], found["median/reward"]) == (1.0, 0.0, 0.25)
    assert found["std/reward"] == pytest.approx(statistics.stdev([0.0, 1.0, 0.5, 0.0]))
    assert found["mean/output_tokens"] == 2.5
    assert found["mean/expected_count"] == 0.5
    assert found["pass@1/reward"] == 50.0
    assert found["pass@2/reward"] == 50.0
    assert found["pass@1[avg-of-2]/reward"] == 37.5
    assert entry["key_metrics"] == {name: value for name, value in found.items() if name.startswith("mean/")}
    first, second = entry["group_level_metrics"]
    assert (first["_ng_task_index"], first["mean/reward"]) == (0, 0.75)
    assert (second["_ng_task_index"], second["std/reward"], second["mean/output_tokens"]) == (1, 0.0, 3.0)


def answered(task: int, rollout: int, reward: float, **fields: object) -> Sample:
    keys = {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "a"}}
    return sample_row(json.dumps({**keys, "reward": reward, **fields}).encode())


@pytest.mark.parametrize(
    ("answers", "majority", "missing"),
    [
        # Rewards are 1, 0, 0 for the first task's repeats and 1, 1, 0 for the second one's.
        ((("A", "B", "B"), ("A", "A", "B")), 50.0, 0.0),
        ((("A", "A", "B"), ("A", "A", "B")), 75.0, 0.0),  # equal texts share their mean reward
        ((("A", "B", None), ("", "A", None)), 75.0, 50.0),  # a tie counts with its mean
        (((None, None, None), (1, [1], {"x": 1})), 100 / 3, 50.0),  # an answer may be any value
    ],
)
def test_answers_of_any_environment_are_voted_on(
    answers: tuple[tuple[object, ...], ...], majority: float, missing: float
) -> None:
    metrics = Metrics()
    for task, rewards in enumerate(((1.0, 0.0, 0.0), (1.0, 1.0, 0.0))):
        for rollout, reward in enumerate(rewards):
            answer = answers[task][rollout]
            metrics.add_sample(answered(task, rollout, reward, extracted_answer=answer))
    found = aggregate(metrics)[0]["agent_metrics"]
    assert found["majority@3/reward"] == pytest.approx(majority)
    assert found["pass@1[avg-of-3]/no_answer"] == pytest.approx(missing)
    # The repeats' means are 1, 0.5 and 0.
    assert found["pass@1[avg-of-3]/reward/std_dev_across_runs"] == pytest.approx(50.0)
    assert found["pass@1[avg-of-3]/reward/std_err_across_runs"] == pytest.approx(50 / 3**0.5)


def test_rows_without_an_answer_field_have_no_votes() -> None:
    metrics = Metrics()
    for rollout in range(2):
        metrics.add_sample(answered(0, rollout, 1.0))
    found = aggregate(metrics)[0]["agent_metrics"]
    assert not any("majority" in name or "no_answer" in name for name in found)


def test_a_record_on_arrival_has_the_answer_of_its_row(record: Record) -> None:
    row = msgspec.json.encode({"agent_ref": {"name": "a"}, "extracted_answer": "A"})
    arrived = sample_record(msgspec.structs.replace(record(0), row=msgspec.Raw(row)))
    assert arrived.answer == answered(0, 0, 1.0, extracted_answer="A").answer > 0


def test_subsets_of_the_rows_have_figures_of_their_own(record: Record) -> None:
    metrics = Metrics()
    for task, subset in enumerate(("easy", "easy", "hard", None, "")):
        for rollout, reward in enumerate((float(task == 0), 1.0)):
            metrics.add_sample(answered(task, rollout, reward, subset_for_metrics=subset))
    found = aggregate(metrics)[0]["agent_metrics"]
    assert {name: value for name, value in found.items() if name.startswith(("easy/", "hard/"))} == {
        "easy/mean/reward": 0.75,
        "easy/pass@1/reward": 75.0,
        "easy/pass@2/reward": 100.0,
        "easy/pass@1[avg-of-1]/reward": 50.0,
        "easy/pass@1[avg-of-2]/reward": 75.0,
        "hard/mean/reward": 0.5,
        "hard/pass@1/reward": 50.0,
        "hard/pass@2/reward": 100.0,
        "hard/pass@1[avg-of-1]/reward": 0.0,
        "hard/pass@1[avg-of-2]/reward": 50.0,
    }
    row = msgspec.json.encode({"agent_ref": {"name": "a"}, "subset_for_metrics": "easy"})
    assert sample_record(msgspec.structs.replace(record(0), row=msgspec.Raw(row))).subset == "easy"
    assert answered(0, 0, 1.0, subset_for_metrics=["easy"]).subset == ""


def test_a_file_may_name_any_number_of_subsets() -> None:
    metrics = Metrics()
    for task in range(300):
        metrics.add_sample(answered(task, 0, 1.0, subset_for_metrics=f"s{task}"))
    found = aggregate(metrics)[0]["agent_metrics"]
    assert sum(name.endswith("/mean/reward") for name in found) == 200


def test_single_rollouts_have_no_pass_at_k(record: Record) -> None:
    (entry,) = aggregate(filled(record(0), record(1)))
    assert not any(name.startswith("pass@") for name in entry["agent_metrics"])


@pytest.mark.parametrize("rewards", [(0.0, 7.0), (-0.5, 1.0)])
def test_a_summary_has_no_pass_at_k_of_rewards_outside_0_to_1(
    rewards: tuple[float, float], record: Record
) -> None:
    metrics = Metrics()
    for index, reward in enumerate(rewards):
        metrics.add(record(0, index, reward=reward))
    assert metrics.summary().pass_at == {}
    assert b"pass@2/reward" in b"".join(metrics.aggregate())  # as NeMo Gym has it
    metrics = Metrics()
    for index in range(2):
        metrics.add(record(0, index, reward=float(index)))
    assert metrics.summary().pass_at == {1: 0.5, 2: 1.0}


def test_a_field_counts_where_it_is_there(record: Record) -> None:
    (entry,) = aggregate(filled(record(0), record(1, extra=4.0), record(1, 1)))
    found = entry["agent_metrics"]
    assert (found["mean/extra"], found["std/extra"]) == (4.0, 0.0)
    assert "mean/extra" not in entry["group_level_metrics"][0]


def test_agents_are_kept_apart(record: Record) -> None:
    metrics = filled(record(0, agent="a"), record(1, agent="b", reward=0.0))
    assert {
        entry["agent_ref"]["name"]: entry["key_metrics"]["mean/reward"] for entry in aggregate(metrics)
    } == {
        "a": 1.0,
        "b": 0.0,
    }
    assert metrics.summary("a").mean_reward == 1.0
    assert metrics.summary().mean_reward == 0.5


def test_no_rollouts_no_entries() -> None:
    assert aggregate(Metrics()) == []
    summary = Metrics().summary()
    assert (summary.rollouts, summary.mean_reward, summary.pass_at) == (0, None, {})


def test_failures_are_counted_and_never_averaged(record: Record, failure: Record) -> None:
    cut = record(0, 1, reward=0.0, outcome=Truncated(reason="max_turns"))
    stopped = record(2, reward=None, outcome=Cancelled())
    metrics = filled(record(0), cut, failure(1), failure(1, 1, kind="task"), failure(2), stopped)
    summary = metrics.summary()
    assert summary.outcomes == {"completed": 1, "truncated": 1, "failed": 3, "cancelled": 1}
    assert summary.failures == {"model": 2, "task": 1}
    assert (summary.rollouts, summary.tasks, summary.mean_reward) == (6, 1, 0.5)
    assert summary.pass_at == {1: 0.5, 2: 1.0}
    assert (summary.turns, summary.tool_calls, summary.input_tokens) == (12, 6, 60)
    assert summary.mean_duration_s == 0.5
    assert (metrics.rollouts, metrics.mean_reward, metrics.failures) == (6, 0.5, summary.failures)
    (entry,) = aggregate(metrics)
    assert len(entry["group_level_metrics"]) == 1
    assert entry["failures"] == {"model": 2, "task": 1}


def test_only_failures_is_not_an_error(failure: Record) -> None:
    (entry,) = aggregate(filled(failure(0)))
    assert entry["agent_metrics"] == {}


def test_a_stored_row_gives_the_sample_of_its_record(record: Record, failure: Record) -> None:
    for made in (
        record(3, 1, reward=0.25, extra=2.0),
        record(3, 1, reward=0.0, outcome=Truncated(reason="max_turns"), flag=True),
    ):
        assert sample_row(bytes(made.row)) == sample_record(made)
    for lost in (failure(4), record(5, outcome=Cancelled(), reward=None)):
        assert sample_row(failure_row(lost)) == sample_record(lost)


def test_rows_of_nemo_gym_are_understood() -> None:
    row = {
        "responses_create_params": {},
        "response": {"output": [], "usage": {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8}},
        "reward": 1.0,
        "correct": True,
        "label": "x",
        "reward_components": {"format": 0.5},
        "agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"},
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
    }
    assert sample_row(json.dumps(row).encode()) == Sample(
        task_index=3,
        rollout_index=1,
        agent="mcqa_simple_agent",
        outcome="completed",
        reward=1.0,
        numbers={
            "reward": 1.0,
            "correct": 1.0,
            "format": 0.5,
            "input_tokens": 7,
            "output_tokens": 1,
            "total_tokens": 8,
        },
    )
    lost = {**row, "_ng_failure_class": "timeout_exceeded", "response": None}
    sample = sample_row(json.dumps(lost).encode())
    assert (sample.outcome, sample.failure, sample.reward) == ("failed", "timeout_exceeded", None)


def fill(metrics: Metrics, rollouts: range) -> None:
    for index in rollouts:
        late = {"late": 1.0} if index > 1500 else {}
        metrics.add_sample(
            Sample(
                task_index=index // 4,
                rollout_index=index % 4,
                agent="a",
                outcome="completed",
                reward=index % 2.0,
                numbers={"reward": index % 2.0, "output_tokens": index % 7.0, **late},
            )
        )


@pytest.mark.slow
def test_a_long_run_keeps_eight_bytes_per_number() -> None:
    metrics = Metrics()
    fill(metrics, range(5000))
    tracemalloc.start()
    fill(metrics, range(5000, 15_000))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 60 * 10_000, "eight bytes for each of three numbers, twelve of the keys, and room to grow"
    (entry,) = aggregate(metrics)
    values = [index % 7.0 for index in range(15_000)]
    assert entry["agent_metrics"]["mean/output_tokens"] == pytest.approx(statistics.fmean(values))
    assert entry["agent_metrics"]["std/output_tokens"] == pytest.approx(statistics.stdev(values))
    assert entry["agent_metrics"]["pass@2/reward"] == pytest.approx(100 * 5 / 6)
    groups = entry["group_level_metrics"]
    assert [group["_ng_task_index"] for group in groups] == list(range(3750))
    assert groups[1]["mean/output_tokens"] == statistics.fmean([4.0, 5.0, 6.0, 0.0])
    assert "mean/late" not in groups[374]
    assert groups[375]["mean/late"] == 1.0
    assert aggregate(metrics) == [entry]


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"_ng_task_index":%d,"_ng_rollout_index":0}' % (10**30),
        b'{"_ng_task_index":0,"_ng_rollout_index":%d}' % (2**63),
    ],
    ids=["deep", "large task", "large rollout"],
)
def test_a_row_that_no_column_can_hold_is_no_rollout_row(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        sample_row(line)


def test_an_integer_that_no_double_holds_is_the_largest_number() -> None:
    line = b'{"_ng_task_index":0,"_ng_rollout_index":0,"_gym":{"roles":{"judge":{"calls":1%s}}}}' % (
        b"0" * 400
    )
    assert sample_row(line).numbers["judge_calls"] == sys.float_info.max
