"""The final output of a run: a table for people, or one JSON document for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.table import Table

from gym_runtime.cli import formatting, terminal
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.files.run_metrics import Metrics, Summary
from gym_runtime.plurals import counted

if TYPE_CHECKING:
    from gym_runtime.cli.display import Tally
    from gym_runtime.files.results import OutputFiles

MESSAGE_LENGTH = 300
SHOWN_PASSES = 6


class FailureKind(msgspec.Struct, frozen=True, kw_only=True):
    """Failed rollouts of one kind: how many, and what one of them said."""

    count: int
    example: str = ""
    stage: str = ""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The document that ``--json`` prints.

    Attributes:
        summary: the whole run, its earlier parts included if it was resumed.
        cost: of its tokens, if prices were given, in their currency.
        environments: the same of each environment, if there are several.
        failures: by kind; an example's message is missing if all of them are of an earlier part.
        total, not_made: how many rollouts the run is of, and how many of them have no result, because it was
            cancelled or interrupted before.
        wall_s, rollouts, rollouts_per_s: of this part of the run; of ``collect``, of what it fetched.
        files: the existing files, by their content.
    """

    run: str
    summary: Summary
    cost: float | None = None
    environments: dict[str, Summary] = {}
    failures: dict[str, FailureKind] = {}
    total: int = 0
    not_made: int = 0
    wall_s: float = 0.0
    rollouts: int = 0
    rollouts_per_s: float = 0.0
    files: dict[str, str] = {}


def report(
    summary: Summary,
    *,
    files: OutputFiles,
    tally: Tally,
    run: str = "",
    wall_s: float = 0.0,
    cost: float | None = None,
    fetched: bool = False,
    as_json: bool = False,
) -> None:
    """Print the result of a run on standard output.

    Args:
        summary: of the whole run.
        tally: of this part of the run, which took ``wall_s``, with the metrics of the whole run.
        cost: of its tokens, where prices are known.
        fetched: it was run elsewhere and may go on: the time is that of fetching.
        as_json: as one JSON document rather than a table.
    """
    paths: dict[str, Path] = msgspec.structs.asdict(files)
    environments = parts(tally.metrics)
    faults = {kind: tally.examples.get(kind) for kind in summary.failures}
    found = RunResult(
        run=run,
        summary=summary,
        cost=cost,
        environments=environments if len(environments) > 1 else {},
        failures={
            kind: FailureKind(
                count=summary.failures[kind],
                example=formatting.shorten(fault.message, MESSAGE_LENGTH) if fault else "",
                stage=fault.stage if fault else "",
            )
            for kind, fault in faults.items()
        },
        total=tally.total,
        not_made=max(0, tally.total - summary.rollouts),
        wall_s=round(wall_s, 3),
        rollouts=tally.added,
        rollouts_per_s=round(tally.added / wall_s, 3) if wall_s else 0.0,
        files={name: formatting.path(path) for name, path in paths.items() if path.exists()},
    )
    if as_json:
        terminal.print_json(found)
    else:
        _show(found, fetched=fetched)


def status(summary: Summary, *, fail_on_failures: bool) -> int:
    """The exit status of a run: 0 if a rollout has a reward, and none failed where that counts; else 1."""
    failed = fail_on_failures and summary.outcomes["failed"]
    return 1 if failed or summary.mean_reward is None else 0


def parts(metrics: Metrics) -> dict[str, Summary]:
    """The summary of each environment. Metrics are by ``agent_ref``; an environment may have several."""
    named: dict[str, list[str]] = {}
    for agent in metrics.agents:
        try:
            name = catalogue.resolve_agent_ref(agent)
        except UsageError:  # rows of an environment that is not installed here
            name = agent
        named.setdefault(name, []).append(agent)
    return {name: metrics.summary(*agents) for name, agents in named.items()}


def _show(result: RunResult, *, fetched: bool) -> None:
    console = terminal.output()
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, value in _lines(result, fetched=fetched):
        grid.add_row(name, value)
    console.print()
    if result.environments:
        console.print(_environments(result.environments))
    console.print(grid)


def _lines(result: RunResult, *, fetched: bool) -> Iterator[tuple[str, str]]:
    summary = result.summary
    if result.run:
        yield "run", result.run
    failed = summary.outcomes["failed"] if summary.failures_as_zero else 0
    zeros = f", {counted(failed, 'failure')} as 0" if failed else ""
    mean = formatting.reward(summary.mean_reward, summary.mean_reward_error)
    yield "mean reward", f"{mean}  (of {counted(summary.rewarded, 'rollout')}{zeros})"
    scores = {"": summary.score, **{name: part.score for name, part in result.environments.items()}}
    for name, score in scores.items():
        if score:
            yield f"score {name}".strip(), "  ".join(f"{what} {value:.4g}" for what, value in score.items())
    ks = list(summary.pass_at)
    for k in ks if len(ks) <= SHOWN_PASSES else [*ks[: SHOWN_PASSES - 1], ks[-1]]:
        share = formatting.share(summary.pass_at[k], summary.pass_error[k])
        of = f"of {summary.pass_tasks[k]:,} of {counted(summary.all_tasks, 'task')}"
        yield f"pass@{k}", f"{share}  ({of}{' with a result so far' if result.not_made else ''})"
    lacking = "collected" if fetched else "run"
    left = f"; {result.not_made:,} of {result.total:,} not {lacking}" if result.not_made else ""
    yield "rollouts", (formatting.breakdown(summary.outcomes) or "none") + left
    for kind, failure in result.failures.items():
        stage = f" (in {failure.stage})" if failure.stage else ""
        said = f": {failure.example}" if failure.example else ""
        yield f"failed: {kind}", f"{failure.count:,}{stage}{said}"
    yield "tokens", f"{summary.input_tokens:,} in, {summary.output_tokens:,} out"
    for role, use in sorted(summary.roles.items()):
        tokens = f"{counted(use.input_tokens, 'token')} in, {use.output_tokens:,} out"
        mean_s = use.seconds / use.calls if use.calls else 0.0
        yield role, f"{counted(use.calls, 'call')}, {tokens}, {mean_s:.2f} s a call"
    if result.cost is not None:
        yield "cost", f"{result.cost:,.6g}"
    yield "turns", f"{summary.turns:,}, with {counted(summary.tool_calls, 'tool call')}"
    if result.rollouts:
        yield (
            "fetched in" if fetched else "time",
            (f"{formatting.span(result.wall_s)}, {formatting.pace(result.rollouts_per_s)}"),
        )
    for name, path in result.files.items():
        yield name.replace("_", " "), path


def _environments(parts: Mapping[str, Summary]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("environment", overflow="fold")
    for name in ("rollouts", "failed", "mean reward", "pass@1", "of tasks"):
        table.add_column(name, justify="right")
    for name, part in parts.items():
        first = part.pass_at.get(1)
        table.add_row(
            name,
            f"{part.rollouts:,}",
            f"{part.outcomes['failed']:,}",
            formatting.reward(part.mean_reward, part.mean_reward_error),
            "-" if first is None else formatting.share(first, part.pass_error[1]),
            f"{part.tasks:,} of {part.all_tasks:,}",
        )
    table.add_row()
    return table
