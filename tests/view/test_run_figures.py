"""The figures of runs and comparisons: as the metrics have them."""

from __future__ import annotations

import json
import math
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.files.sample import sample_row
from gym_view.run_comparison import Comparison, bootstrap, means_of
from gym_view.run_comparison import compare as compared
from gym_view.run_figures import Groups, figures_of, rows_of
from gym_view.run_files import Run
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st


def compare(a: Groups, b: Groups) -> Comparison:
    return compared(means_of(a), means_of(b))


class Rollout(msgspec.Struct):
    task: int
    rollout: int
    environment: str = "mcqa"
    reward: float | None = 1.0
    prompt: str = ""


def write(folder: Path, name: str, rollouts: list[Rollout]) -> Run:
    """A run's files: rollouts with a reward, and failures."""
    lines: dict[bool, list[bytes]] = {True: [], False: []}
    for number, one in enumerate(rollouts):
        row: dict[str, Any] = {
            "responses_create_params": {"input": one.prompt or f"task {one.task}"},
            "response": {"id": f"{name}-{number}", "usage": {"input_tokens": 3, "output_tokens": number}},
            "_ng_task_index": one.task,
            "_ng_rollout_index": one.rollout,
            "agent_ref": {"name": one.environment},
            "_gym": {"outcome": {"type": "completed"}, "turns": 2, "tool_calls": 1, "duration_s": 0.25},
        }
        if one.reward is None:
            row["_ng_failure_class"] = "model"
        else:
            row["reward"] = one.reward
        lines[one.reward is None].append(json.dumps(row).encode() + b"\n")
    path = folder / f"{name}.jsonl"
    path.write_bytes(b"".join(lines[False]))
    failures = folder / f"{name}_failures.jsonl"
    failures.unlink(missing_ok=True)
    if lines[True]:
        failures.write_bytes(b"".join(lines[True]))
    return Run(id=name, rollouts=path)


REWARDS = st.sampled_from([0.0, 1.0, 0.0, 1.0, 0.5, -1.0, 0.1]) | st.none()
ROLLOUTS = st.lists(
    st.builds(Rollout, st.integers(0, 6), st.integers(0, 4), st.sampled_from(["mcqa", "xstest"]), REWARDS),
    min_size=1,
    max_size=40,
    unique_by=lambda one: (one.task, one.rollout),
)


@given(rollouts=ROLLOUTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_run_has_the_figures_of_its_metrics(rollouts: list[Rollout], tmp_path: Path) -> None:
    run = write(tmp_path, "run", rollouts)
    figures, _ = figures_of(row for _, row in rows_of(run))
    metrics = Metrics()
    for path in run.parts.values():
        for line in path.read_bytes().splitlines():
            metrics.add_sample(sample_row(line))
    summary = metrics.summary()
    assert figures.rollouts == summary.rollouts
    assert figures.outcomes == {name: count for name, count in summary.outcomes.items() if count}
    assert figures.mean_reward == pytest.approx(summary.mean_reward)
    assert figures.mean_error == pytest.approx(summary.mean_reward_error)
    assert figures.pass_at == pytest.approx(summary.pass_at)
    assert figures.pass_error == pytest.approx(summary.pass_error)
    assert (figures.pass_tasks, figures.tasks) == (summary.pass_tasks, summary.all_tasks)
    assert (figures.turns, figures.tool_calls) == (summary.turns, summary.tool_calls)
    assert (figures.input_tokens, figures.output_tokens) == (summary.input_tokens, summary.output_tokens)


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(
    a=st.lists(st.tuples(st.integers(0, 3), FINITE), min_size=1, max_size=8), factor=st.sampled_from([1, -1])
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@example(a=[(0, 1e308), (0, 1e308), (1, 1.7e308)], factor=-1)
def test_runs_of_any_finite_rewards_are_compared(
    a: list[tuple[int, float]], factor: int, tmp_path: Path
) -> None:
    one = [Rollout(task, number, reward=reward) for number, (task, reward) in enumerate(a)]
    other = [Rollout(task, number, reward=reward * factor) for number, (task, reward) in enumerate(a)]
    # A folder each: an index takes a file of the same size and time for the one that it has read.
    runs = [
        write(Path(tempfile.mkdtemp(dir=tmp_path)), name, rollouts)
        for name, rollouts in (("a", one), ("b", other))
    ]
    (figures, groups_a), (_, groups_b) = (figures_of(row for _, row in rows_of(run)) for run in runs)
    result = compare(groups_a, groups_b)
    for value in (figures.mean_reward, figures.mean_error, result.difference, result.low, result.high):
        assert value is None or math.isfinite(value)
    assert result.wins + result.losses + result.ties == len(result.pairs) == len(groups_a)
    if factor == 1:
        assert result.ties == len(result.pairs)


def test_failures_count_as_zero_where_that_is_asked_for(tmp_path: Path) -> None:
    run = write(tmp_path, "run", [Rollout(0, 0), Rollout(0, 1, reward=None), Rollout(1, 0, reward=None)])
    plain, _ = figures_of(row for _, row in rows_of(run))
    assert (plain.mean_reward, plain.pass_tasks, plain.tasks) == (1.0, {1: 1}, 2)
    zeros, _ = figures_of((row for _, row in rows_of(run)), failures_as_zero=True)
    assert (zeros.mean_reward, zeros.pass_tasks, zeros.tasks) == (pytest.approx(1 / 3), {1: 2, 2: 1}, 2)


def test_a_failure_that_was_made_again_does_not_count(tmp_path: Path) -> None:
    again = [Rollout(0, 0, reward=None), Rollout(0, 0, reward=None), Rollout(0, 0, reward=1.0)]
    still = [Rollout(1, 0, reward=None), Rollout(1, 0, reward=None)]
    run = write(tmp_path, "run", again + still)
    figures, _ = figures_of(row for _, row in rows_of(run))
    assert figures.outcomes == {"completed": 1, "failed": 1}


def test_useful_tokens_are_those_of_rollouts_that_differ_from_their_group(tmp_path: Path) -> None:
    # The rollouts have 0, 1, 2, … tokens.
    mixed = [Rollout(0, 0, reward=0.0), Rollout(0, 1, reward=1.0), Rollout(0, 2, reward=0.5)]
    flat = [Rollout(1, 0), Rollout(1, 1), Rollout(1, 2, reward=None)]
    other = [Rollout(2, 0, "xstest"), Rollout(2, 1, "xstest", reward=0.0), Rollout(3, 0, "alone")]
    run = write(tmp_path, "run", mixed + flat + other)
    figures, _ = figures_of(row for _, row in rows_of(run))
    assert figures.useful == (0 + 1 + 6 + 7) / sum(range(8))
    assert figures.useful_by_environment == {"mcqa": 1 / sum(range(6)), "xstest": 1.0}
    single = write(tmp_path, "single", [Rollout(0, 0), Rollout(1, 0)])
    assert figures_of(row for _, row in rows_of(single))[0].useful is None


def test_runs_whose_tasks_are_numbered_otherwise_are_joined_by_prompt(tmp_path: Path) -> None:
    a = write(tmp_path, "a", [Rollout(task, 0, reward=0.0, prompt=f"prompt {task}") for task in range(4)])
    shifted = [Rollout(task, 0, "theirs", 1.0, f"prompt {task - 2}") for task in range(2, 6)]
    b = write(tmp_path, "b", shifted)
    groups = [figures_of(row for _, row in rows_of(run))[1] for run in (a, b)]
    result = compare(*groups)
    assert (result.joined_by, result.wins, result.only_a, result.only_b) == ("prompt", 4, 0, 0)
    assert [(pair.task_a, pair.task_b) for pair in result.pairs] == [(0, 2), (1, 3), (2, 4), (3, 5)]
    assert {pair.environment_b for pair in result.pairs} == {"theirs"}


def test_tasks_that_are_joined_by_their_index_and_have_other_prompts_are_counted(tmp_path: Path) -> None:
    a = write(tmp_path, "a", [Rollout(task, 0, reward=0.0, prompt=f"prompt {task}") for task in range(3)])
    b = write(tmp_path, "b", [Rollout(task, 0, reward=1.0, prompt=f"be brief; {task}") for task in range(3)])
    one, other = [figures_of(row for _, row in rows_of(run))[1] for run in (a, b)]
    result = compare(one, other)
    assert (result.joined_by, result.other_prompts, result.wins) == ("task index", 3, 3)
    assert compare(one, one).other_prompts == 0


def test_a_guest_with_other_settings_is_compared_by_index_where_prompts_repeat(tmp_path: Path) -> None:
    """A game's seeds have one prompt, and its settings are in its name: there was no task in common."""
    runs = [
        write(tmp_path, name, [Rollout(task, 0, f"nim_{name}", reward, "Play.") for task in range(3)])
        for name, reward in (("a", 0.0), ("b", 1.0))
    ]
    result = compare(*[figures_of(row for _, row in rows_of(run))[1] for run in runs])
    assert (result.joined_by, result.wins, result.other_prompts) == ("task index", 3, 0)
    other = write(tmp_path, "c", [Rollout(task, 0, "chess", 1.0, "Begin.") for task in range(3)])
    unlike = [figures_of(row for _, row in rows_of(run))[1] for run in (runs[0], other)]
    assert not compare(*unlike).pairs


def test_runs_without_a_common_task_have_no_difference(tmp_path: Path) -> None:
    a, b = write(tmp_path, "a", [Rollout(0, 0)]), write(tmp_path, "b", [Rollout(1, 0)])
    groups = [figures_of(row for _, row in rows_of(run))[1] for run in (a, b)]
    result = compare(*groups)
    assert (result.difference, result.low, result.only_a, result.only_b) == (None, None, 1, 1)


@pytest.mark.slow
def test_the_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    random_ = random.Random(5)
    covered = 0
    for _ in range(60):
        low, high, _ = bootstrap([random_.gauss(0.2, 1.0) for _ in range(40)])
        assert low is not None
        assert high is not None
        covered += low <= 0.2 <= high
    assert 50 <= covered <= 60


def test_few_differences_of_one_sign_may_be_chance() -> None:
    """An exact sign test of five gives 0.0625, of six 0.031."""
    for few in ([0.5, 0.25], [1.0] * 5, [0.0] * 95 + [1.0] * 5):
        low, high, _ = bootstrap(few)
        assert low == 0.0 < (high or 0.0), few
        low, high, _ = bootstrap([-one for one in few])
        assert high == 0.0 > (low or 0.0), few
    assert (bootstrap([0.5, 0.25, 0.5, 0.75, 1.0, 0.5])[0] or 0.0) > 0.0


@pytest.mark.parametrize(("tasks", "student"), [(6, 2.5706), (8, 2.3646), (20, 2.0930)])
def test_of_few_tasks_the_interval_is_as_wide_as_students(tasks: int, student: float) -> None:
    """Percentiles alone are 0.70, 0.77 and 0.91 times as wide."""
    random_, ratios = random.Random(5), list[float]()
    for _ in range(20):
        values = [random_.gauss(0.2, 1.0) for _ in range(tasks)]
        low, high, _ = bootstrap(values)
        assert low is not None
        assert high is not None
        ratios.append((high - low) / (2 * student * statistics.stdev(values) / math.sqrt(tasks)))
    assert statistics.fmean(ratios) == pytest.approx(1.0, abs=0.05)


def test_the_interval_of_equal_differences_is_a_point() -> None:
    low, high, resamples = bootstrap([0.5] * 10)
    assert (low, high, resamples) == (0.5, 0.5, 2000)
    assert bootstrap([]) == (None, None, 0)
    assert not math.isnan(bootstrap([1e308, 1e308])[0] or 0.0)
