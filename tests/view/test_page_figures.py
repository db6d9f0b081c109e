"""What the page draws of a run: bars, courses, tasks and endings, of whatever was written."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from gym_view.page_figures import Bar, Ending, page_figures, spread
from gym_view.run_files import Run
from hypothesis import example, given
from hypothesis import strategies as st


def run(folder: Path, rollouts: list[dict[str, Any]], failures: list[dict[str, Any]]) -> Run:
    for name, rows in (("run", rollouts), ("run_failures", failures)):
        lines = [json.dumps({"response": {"id": f"{name}{at}"}, **row}) for at, row in enumerate(rows)]
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return Run(id="run", rollouts=folder / "run.jsonl")


def row(task: int, rollout: int, environment: str = "mcqa", **fields: Any) -> dict[str, Any]:
    indices = {"_ng_task_index": task, "_ng_rollout_index": rollout}
    return {**indices, "agent_ref": {"name": environment}, **fields}


def test_a_run_is_drawn_by_task_environment_and_ending(tmp_path: Path) -> None:
    usage: dict[str, Any] = {"response": {"usage": {"output_tokens": 30}}}
    rollouts = [row(0, 0, reward=1.0, **usage), row(0, 1, reward=0.0), row(1, 0, "quiz", reward=0.0)]
    fault: dict[str, Any] = {"_ng_failure": {"kind": "model", "stage": "respond"}}
    fault["_ng_failure_class"] = "model"
    made_again = row(0, 1, **fault)
    found = page_figures(
        run(tmp_path, rollouts, [made_again, row(1, 1, "quiz", **fault), row(2, 0, **fault)])
    )
    assert [(one.task, one.kind, one.mean, one.passed, one.tokens) for one in found.tasks] == [
        (0, "mixed", 0.5, 0.5, 15.0),
        (1, "zero", 0.0, 0.0, 0.0),
        (2, "none", None, None, 0.0),
    ]
    assert [(one.environment, one.rollouts, one.mean) for one in found.environments] == [
        ("mcqa", 3, 0.5),
        ("quiz", 2, 0.0),
    ]
    completed, failed = found.endings
    assert completed == Ending("completed", "", ["mcqa", "quiz"], "0.0", "1.0", 3)
    assert (failed.outcome, failed.count, failed.first, failed.last) == ("failed", 2, "1.1", "2.0")
    assert failed.fault.startswith("model\x1frespond")
    assert (found.rated, found.run.rollouts, found.run.mixed) == (3, 5, 1)


def test_a_line_that_is_no_row_is_no_rollout_of_a_task_without_a_name(tmp_path: Path) -> None:
    usage: dict[str, Any] = {"response": {"usage": {"output_tokens": 30}}}
    found = run(tmp_path, [row(1, 0, "", reward=1.0, **usage)], [])
    with found.rollouts.open("a") as file:
        file.write("no json\n")  # the second line, so it has the number 1
    figures = page_figures(found)
    assert [(one.task, one.tokens) for one in figures.tasks] == [(1, 30.0)]
    assert [(one.environment, one.rollouts) for one in figures.environments] == [("", 1)]
    assert figures.run.useful is None  # a single rollout is no group
    assert figures.run.outcomes == {"completed": 1, "unreadable": 1}


def test_pass_at_1_of_tasks_is_that_of_the_run(tmp_path: Path) -> None:
    rewards = ((0.5, 1.0), (1.0, 0.5), (0.0, 1.0), (0.0, 0.0))
    rows = [
        row(task, k, reward=reward) for task, group in enumerate(rewards) for k, reward in enumerate(group)
    ]
    found = page_figures(run(tmp_path, rows, []))
    passed = [one.passed for one in found.tasks]
    assert passed == [0.5, 1.0, 0.5, 0.0]
    assert found.run.pass_at[1] == sum(one or 0.0 for one in passed) / len(passed)


def test_a_line_that_is_no_json_makes_up_for_no_failure(tmp_path: Path) -> None:
    fault: dict[str, Any] = {"_ng_failure": {"kind": "model"}, "_ng_failure_class": "model"}
    found = run(tmp_path, [row(0, 0, reward=1.0)], [row(1, 0, **fault), row(2, 0, **fault)])
    for name in ("run", "run_failures"):
        with (tmp_path / f"{name}.jsonl").open("a") as file:
            file.write("no json\n")  # without numbers of its own, it has that of its line: 1 and 2
    assert page_figures(found).run.outcomes == {"completed": 1, "failed": 2, "unreadable": 2}


def test_the_course_is_of_the_file_of_rollouts(tmp_path: Path) -> None:
    rollouts = [row(task, 0, reward=float(task >= 5)) for task in range(12)]
    found = page_figures(run(tmp_path, rollouts, [row(20, 0, _ng_failure_class="model")]))
    assert [(one.first, one.last, one.mean) for one in found.course] == [
        (0, 4, 0.0),
        (5, 9, 1.0),
        (10, 11, 1.0),
    ]


def test_few_values_have_a_bar_each_and_many_have_round_borders() -> None:
    assert spread([1.0, 0.0, 1.0, math.nan]).bars == [Bar(0.0, 0.0, 1, True), Bar(1.0, 1.0, 2, True)]
    many = spread(list(range(100)))
    assert (many.bars[0], many.bars[-1]) == (Bar(0.0, 5.0, 5, False), Bar(95.0, 100.0, 5, False))
    assert (many.half, many.most) == (50, 99)
    assert spread([]).bars == []


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40))
@example([1.7e308 * (number / 7 - 1) for number in range(14)])
@example([5e-324 * number for number in range(14)])
def test_every_value_is_in_one_bar(values: list[float]) -> None:
    bars = spread(values).bars
    assert sum(bar.count for bar in bars) == len(values)
    assert len(bars) <= 24
    assert all(math.isfinite(bar.low) and math.isfinite(bar.high) for bar in bars)


def test_more_tries_are_never_worse_in_a_run_that_goes_on(tmp_path: Path) -> None:
    # Two hard tasks have all their rollouts, three easy ones have their first.
    rollouts = [
        row(task, number, reward=float(task * number == 2)) for task in range(2) for number in range(3)
    ]
    rollouts += [row(task, 0, reward=1.0) for task in range(2, 5)]
    found = page_figures(run(tmp_path, rollouts, []))
    assert found.run.pass_at[1] > found.run.pass_at[3]
    assert found.tries.tasks == 2
    assert [round(value, 3) for value in found.tries.pass_at.values()] == [0.167, 0.333, 0.5]


def test_means_have_errors_clustered_by_task(tmp_path: Path) -> None:
    rollouts = [row(task, number, reward=float(task)) for task in range(2) for number in range(2)]
    found = page_figures(run(tmp_path, rollouts, []))
    # Two tasks, whatever the number of their rollouts.
    assert [(one.mean, one.error) for one in found.course] == [(0.5, 0.5)]
    assert [(one.mean, one.error) for one in found.environments] == [(0.5, 0.5)]
