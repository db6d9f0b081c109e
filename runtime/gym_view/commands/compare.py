"""``compare``: two runs side by side, with the figures that the page shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gym_runtime.cli import AsJson, FailuresAsZero, formatting, terminal
from gym_runtime.errors import UsageError
from gym_runtime.plurals import counted
from rich.table import Table

from gym_view import harbor_jobs
from gym_view.indexing import indexed
from gym_view.once import rollouts_once
from gym_view.run_comparison import Comparison, Pair, means_of
from gym_view.run_comparison import compare as compared
from gym_view.run_figures import Groups, RunFigures, figures_of, rows_of
from gym_view.run_files import Run, has_rollouts, one_file

SHOWN_TASKS = 20


def compare(
    a: Path,
    b: Path,
    /,
    *,
    json: AsJson = False,
    failures_as_zero: FailuresAsZero = False,
    reward_key: str = "",
) -> int:
    """Compare two runs task by task: which is better, by how much, and which tasks flipped.

    Args:
        a: Rollouts of the first run, or a folder with one run.
        b: Those of the second; of a run of harbor:PATH, also the folder of a job of Harbor's own runner.
        reward_key: Which reward of Harbor's trials is read where they have several; by default reward.
    """
    if harbor_jobs.is_job(b):
        return _beside_harbor(one_file(a), b, reward_key, json=json)
    if reward_key:
        raise UsageError(f"--reward-key is for a job of Harbor's own runner, which {b} is not")
    a, b = one_file(a), one_file(b)
    (one, groups_a), (other, groups_b) = (
        _figures(path, failures_as_zero=failures_as_zero) for path in (a, b)
    )
    result = compared(means_of(groups_a), means_of(groups_b))
    if not result.pairs:
        raise UsageError(f"{a} and {b} have no task in common with a verdict in both")
    if json:
        terminal.print_json(
            {
                "a": {"rollouts": str(a), "figures": one},
                "b": {"rollouts": str(b), "figures": other},
                "comparison": result,
            }
        )
        return 0
    # Runs of one environment have one name by default, so that only their folders differ.
    names = (a.stem, b.stem) if a.stem != b.stem else (str(a), str(b))
    _print(names, one, other, result)
    return 0


def _beside_harbor(a: Path, job: Path, reward_key: str, *, json: bool) -> int:
    found, alone, names = harbor_jobs.compared(Run(id=a.stem, rollouts=a), job, reward_key)
    judged = harbor_jobs.mean(one.ours for one in found), harbor_jobs.mean(one.theirs for one in found)
    as_zero = (
        harbor_jobs.mean(one.ours_as_zero for one in found),
        harbor_jobs.mean(one.theirs_as_zero for one in found),
    )
    if json:
        means = {"judged": judged, "failures_as_zero": as_zero}
        whole = {"rollouts": str(a), "job": str(job), "means": means, "tasks": found, "only_in_one": alone}
        terminal.print_json({**whole, "reward_names": names})
        return 0
    table = Table(box=None, pad_edge=False, header_style="")
    read = "" if names in ([], ["reward"]) else f" ({formatting.shorten(', '.join(names), 40)})"
    for title in ("", a.stem, f"Harbor{read}"):
        table.add_column(title, justify="right" if title else "left")

    def shown(*means: float | None) -> list[str]:
        return ["-" if mean is None else formatting.reward(mean) for mean in means]

    table.add_row("mean reward of what was judged", *shown(*judged))
    table.add_row("with 0 for what was not, as Harbor books", *shown(*as_zero))
    differ = [one for one in found if one.differs]
    for one in differ[:SHOWN_TASKS]:
        table.add_row(formatting.shorten(one.task, 40), *shown(one.ours, one.theirs), style="bold")
    console = terminal.output()
    console.print(table)
    only = f"; only in one: {alone[0]:,} and {alone[1]:,}" if any(alone) else ""
    console.print(f"{counted(len(found), 'task')}, {len(differ):,} of them with different rewards{only}")
    for one in [one for one in found if one.why][:SHOWN_TASKS]:
        console.print(f"not judged: {one.task}: {formatting.shorten(one.why, 200)}", soft_wrap=True)
    return 0


def _figures(path: Path, *, failures_as_zero: bool) -> tuple[RunFigures, Groups]:
    run = Run(id=path.stem, rollouts=path)
    if not has_rollouts(path):
        raise UsageError(f"{path} holds no rollouts; name a file of result rows, such as results/mcqa.jsonl")
    rows = (row for _, row in rows_of(run, rollouts_once, indexed))
    return figures_of(rows, failures_as_zero=failures_as_zero)


def _print(names: tuple[str, str], one: RunFigures, other: RunFigures, result: Comparison) -> None:
    console = terminal.output()
    table = Table(box=None, pad_edge=False, header_style="")
    for title in ("", *names):
        table.add_column(title, justify="right" if title else "left")
    for name, first, second in _lines(one, other):
        table.add_row(name, first, second)
    console.print(table)
    console.print()
    if result.difference is None:
        console.print("a difference of rewards is larger than a number can be")
        return
    said = f"difference {result.difference:+.4g} over {counted(len(result.pairs), 'task')}"
    if result.low is None or result.high is None:
        console.print(f"{said}: one task cannot tell which run is better")
    else:
        verdict = (
            "better"
            if result.low > 0
            else "worse"
            if result.high < 0
            else "no different, as far as these tasks tell"
        )
        console.print(
            f"{said}, 95 % interval {result.low:+.4g} to {result.high:+.4g}: {names[1]} is {verdict}"
        )
    console.print(
        f"{result.wins:,} better, {result.ties:,} equal, {result.losses:,} worse"
        + (f"; only in one: {result.only_a:,} and {result.only_b:,}" if result.only_a + result.only_b else "")
        + f"  (tasks joined by {result.joined_by}"
        + (f"; bootstrap over tasks, {result.resamples:,} draws)" if result.resamples else ")")
    )
    if result.other_prompts:
        console.print(
            f"{counted(result.other_prompts, 'task')} with another prompt in the second run: if these are "
            "other tasks, the difference says nothing"
        )
    _print_flipped(result.pairs)


def _print_flipped(pairs: list[Pair]) -> None:
    flipped = [(pair, pair.difference) for pair in pairs if pair.difference]
    flipped.sort(key=lambda one: -abs(one[1]))
    if not flipped:
        return
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("task", justify="right")
    table.add_column("environment")
    for title in ("a", "b", ""):
        table.add_column(title, justify="right")
    for pair, difference in flipped[:SHOWN_TASKS]:
        numbers = (formatting.reward(pair.mean_a), formatting.reward(pair.mean_b), f"{difference:+.4g}")
        table.add_row(str(pair.task_a), formatting.shorten(pair.environment, 40), *numbers)
    console = terminal.output()
    console.print()
    console.print(table)
    if len(flipped) > SHOWN_TASKS:
        console.print(f"… and {len(flipped) - SHOWN_TASKS:,} more (--json lists all)")


def _lines(one: RunFigures, other: RunFigures) -> list[tuple[str, str, str]]:
    def both(name: str, shown: Callable[[RunFigures], str]) -> tuple[str, str, str]:
        return name, shown(one), shown(other)

    def passed(k: int) -> Callable[[RunFigures], str]:
        return lambda run: (
            f"{formatting.share(run.pass_at[k], run.pass_error[k])}, "
            f"{run.pass_tasks[k]:,} of {counted(run.tasks, 'task')}"
            if k in run.pass_at
            else "-"
        )

    return [
        both("mean reward", lambda run: formatting.reward(run.mean_reward, run.mean_error)),
        *(both(f"pass@{k}", passed(k)) for k in sorted({*one.pass_at, *other.pass_at})),
        both("rollouts", lambda run: f"{run.rollouts:,}"),
        both("outcomes", lambda run: formatting.breakdown(run.outcomes)),
        both("tasks with differing rewards", lambda run: f"{run.mixed:,} of {run.tasks:,}"),
        both("tokens", lambda run: f"{run.input_tokens:,} in, {run.output_tokens:,} out"),
        both("turns", lambda run: f"{run.turns:,}, with {counted(run.tool_calls, 'tool call')}"),
        both(
            "time a rollout", lambda run: formatting.span(run.mean_duration_s) if run.mean_duration_s else "-"
        ),
    ]
