"""The figures of runs and comparisons: as the metrics have them, and the same on the page."""

from __future__ import annotations

import base64
import json
import math
import random
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.files.sample import sample_row
from gym_runtime.statistics import Clusters, mean
from gym_view.indexing import index_of
from gym_view.run_comparison import bootstrap, compare
from gym_view.run_figures import figures_of, rows_of
from gym_view.run_files import Run
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from view import node

PAGE_FIGURES = """
const { Columns } = await import(src + "/columns.js");
const { select } = await import(src + "/query.js");
const { figuresOf, compare } = await import(src + "/figures.js");
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
const read = (parts) => {
  const columns = new Columns();
  parts.forEach((part, at) => columns.add(at, bytes(part)));
  columns.supersede();
  return figuresOf(columns, select(columns, []));
};
const answer = (runs) => {
  const [a, b] = runs.map(read);
  const { groups, ...figures } = a;
  return { figures, comparison: b ? compare(a.groups, b.groups) : null };
};
"""


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


def on_the_page(*runs: Run, script: str = PAGE_FIGURES) -> Any:
    """The figures of the first run and the comparison with the second, by the page's own code."""
    records = [[base64.b64encode(index_of(path)).decode() for path in run.parts.values()] for run in runs]
    return node.run(script, records)


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


@given(a=ROLLOUTS, b=ROLLOUTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=12)
def test_the_page_has_the_same_figures(a: list[Rollout], b: list[Rollout], tmp_path: Path) -> None:
    runs = [write(tmp_path, name, rollouts) for name, rollouts in (("a", a), ("b", b))]
    (figures, groups_a), (_, groups_b) = (figures_of(row for _, row in rows_of(run)) for run in runs)
    result = compare(groups_a, groups_b)
    page = on_the_page(*runs)
    shown = page["figures"]
    assert shown["rollouts"] == figures.rollouts
    assert shown["outcomes"] == figures.outcomes
    assert shown["mean"] == pytest.approx(figures.mean_reward, abs=1e-12)
    assert shown["meanError"] == pytest.approx(figures.mean_error, abs=1e-12)
    assert {one["k"]: one["value"] for one in shown["pass"]} == pytest.approx(figures.pass_at, abs=1e-12)
    assert {one["k"]: one["error"] for one in shown["pass"]} == pytest.approx(figures.pass_error, abs=1e-12)
    assert {one["k"]: one["groups"] for one in shown["pass"]} == figures.pass_tasks
    assert all(one["of"] == figures.tasks for one in shown["pass"])
    assert shown["signal"] == {"zero": figures.all_zero, "equal": figures.all_equal, "mixed": figures.mixed}
    for name in ("wins", "losses", "ties", "resamples"):
        assert page["comparison"][name] == getattr(result, name)
    for name in ("difference", "low", "high"):
        assert page["comparison"][name] == pytest.approx(getattr(result, name), abs=1e-12)
    assert page["comparison"]["joinedBy"] == result.joined_by
    assert [(pair["env"], pair["taskA"], pair["taskB"]) for pair in page["comparison"]["pairs"]] == [
        (pair.environment, pair.task_a, pair.task_b) for pair in result.pairs
    ]


PAGE_STATISTICS = """
const { mean, standardError } = await import(src + "/statistics.js");
const { groupsOf, histogram, compare } = await import(src + "/figures.js");
const group = (rewards, task) => ({ env: "e", task, key: 0, rewards, mean: mean(rewards) });
const finite = (value) => value === null || Number.isFinite(value);
const answer = (cases) => cases.map((groups) => {
  const values = groups.flat(), other = groups.map((one) => one.map((value) => -value));
  histogram(values);
  const { pairs, ...result } = compare(groups.map(group), other.map(group));
  const ends = [result.difference, result.low, result.high, ...pairs.map((pair) => pair.difference)];
  return { mean: mean(values), error: standardError(groups), finite: ends.every(finite) };
});
"""
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.lists(st.lists(FINITE, max_size=8), max_size=14), min_size=12, max_size=12))
@example([[[1e308, 1e308]], [[1.7e308], [-1.7e308]], [[float(n)] for n in range(14)], [[0.1, 0.1, 0.1]]])
@example([[[1.7e308 * (n / 7 - 1)] for n in range(14)], [[5e-324 * n] for n in range(14)]])
@settings(deadline=None, max_examples=12)
def test_the_page_takes_every_finite_reward(cases: list[list[list[float]]]) -> None:
    for groups, found in zip(cases, node.run(PAGE_STATISTICS, cases), strict=True):
        values, clusters = [value for group in groups for value in group], Clusters()
        for group in groups:
            clusters.add(group)
        assert found["finite"]
        true = mean(values)
        assert found["mean"] == (true if true is None else pytest.approx(true, rel=1e-15, abs=1e-323))
        most = max(map(abs, values), default=0.0)
        if found["error"] is None or clusters.standard_error is None:
            assert clusters.standard_error is None or clusters.standard_error > 1e308
        else:
            assert found["error"] == pytest.approx(clusters.standard_error, rel=1e-9, abs=1e-12 * most)


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
    page = PAGE_FIGURES.replace("new Columns();", "Object.assign(new Columns(), { failuresAsZero: true });")
    shown = on_the_page(run, script=page)["figures"]
    assert shown["mean"] == pytest.approx(zeros.mean_reward)
    assert {one["k"]: one["groups"] for one in shown["pass"]} == zeros.pass_tasks


def test_a_failure_that_was_made_again_does_not_count(tmp_path: Path) -> None:
    again = [Rollout(0, 0, reward=None), Rollout(0, 0, reward=None), Rollout(0, 0, reward=1.0)]
    still = [Rollout(1, 0, reward=None), Rollout(1, 0, reward=None)]
    run = write(tmp_path, "run", again + still)
    figures, _ = figures_of(row for _, row in rows_of(run))
    assert figures.outcomes == {"completed": 1, "failed": 1}
    assert on_the_page(run)["figures"]["outcomes"] == figures.outcomes


def test_runs_whose_tasks_are_numbered_otherwise_are_joined_by_prompt(tmp_path: Path) -> None:
    a = write(tmp_path, "a", [Rollout(task, 0, reward=0.0, prompt=f"prompt {task}") for task in range(4)])
    shifted = [Rollout(task, 0, "theirs", 1.0, f"prompt {task - 2}") for task in range(2, 6)]
    b = write(tmp_path, "b", shifted)
    groups = [figures_of(row for _, row in rows_of(run))[1] for run in (a, b)]
    result = compare(*groups)
    assert (result.joined_by, result.wins, result.only_a, result.only_b) == ("prompt", 4, 0, 0)
    assert [(pair.task_a, pair.task_b) for pair in result.pairs] == [(0, 2), (1, 3), (2, 4), (3, 5)]
    assert on_the_page(a, b)["comparison"]["joinedBy"] == "prompt"


def test_runs_without_a_common_task_have_no_difference(tmp_path: Path) -> None:
    a, b = write(tmp_path, "a", [Rollout(0, 0)]), write(tmp_path, "b", [Rollout(1, 0)])
    groups = [figures_of(row for _, row in rows_of(run))[1] for run in (a, b)]
    result = compare(*groups)
    assert (result.difference, result.low, result.only_a, result.only_b) == (None, None, 1, 1)


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    random_ = random.Random(5)
    covered = 0
    for _ in range(60):
        low, high, _ = bootstrap([random_.gauss(0.2, 1.0) for _ in range(40)])
        assert low is not None
        assert high is not None
        covered += low <= 0.2 <= high
    assert 50 <= covered <= 60


def test_the_interval_of_equal_differences_is_a_point() -> None:
    low, high, resamples = bootstrap([0.5] * 10)
    assert (low, high, resamples) == (0.5, 0.5, 2000)
    assert bootstrap([]) == (None, None, 0)
    assert not math.isnan(bootstrap([1e308, 1e308])[0] or 0.0)
