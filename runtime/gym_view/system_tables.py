"""How the figures of a running system are written: one place for ``top``, ``status`` and ``ls runs``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gym_runtime import escapes
from gym_runtime.cli import formatting, terminal
from rich.table import Table

if TYPE_CHECKING:
    from gym_runtime.client import RunProgress
    from gym_runtime.training import RunInfo

    from gym_view.live import RunView, View, WorkerView

DRAWN = 200
"""The most rows of a printed table: a thousand take more than a second, and are too many to read."""
MODEL_CHARS = 40
ABOUT_CHARS = 60
NUMBERS = {
    *("pid", "done", "failed", "rollouts", "rate", "left", "reward", "useful", "truncated", "count"),
    *("waiting", "in flight", "load", "in use", "per s", "p50", "p99", "core", "memory", "failures"),
}
"""Columns that are aligned to the right."""
RUNS = (
    "run",
    "state",
    "done",
    "failed",
    "rollouts",
    "rate",
    "left",
    "reward",
    "useful",
    "model",
    "environments",
    "started",
)
WORKERS = (
    *("kind", "serves", "worker", "host", "pid", "in use", "load", "per s", "p50", "p99"),
    *("core", "memory", "failures", "up", "about"),
)
WHOLE = ("name", "run", "worker", "pid")
"""Columns whose cells stay on one line."""
LEAST = (
    *("about", "up", "pid", "memory", "host", "p99", "p50", "per s", "failures", "stage"),
    *("started", "environments", "model", "useful", "left", "rate", "core", "load", "failed", "state"),
    "worker",
)
"""Columns that a narrow terminal is spared, the first one first."""
SQUEEZED = 24
"""Characters to which a column may be folded."""
QUEUES = ("queue", "waiting", "in flight")
ENGINES = ("model", "worker", "in use", "load", "per s", "p50", "p99", "failures", "state", "about")
FAILURES = ("count", "environment", "failure", "stage", "run")


class Row(NamedTuple):
    """One line: its subject, its cells, and whether it reports a fault."""

    key: str
    cells: tuple[str, ...]
    bad: bool = False


def runs(runs: Sequence[RunView]) -> list[Row]:
    """The rows of `RUNS`."""
    return [
        Row(
            run.run,
            (
                run.run,
                run.state,
                _count(run.done),
                _count(run.failed),
                # Of a stream of rows nothing says how many it has.
                _count(run.total or None),
                _rate(run.rate_per_s),
                "-" if run.left_s is None else formatting.span(run.left_s),
                formatting.reward(run.mean_reward),
                "-" if run.useful is None else f"{run.useful:.0%}",
                formatting.shorten(run.model, MODEL_CHARS) or "-",
                formatting.shorten(formatting.listed(run.environments), ABOUT_CHARS),
                _ago(run.created_s),
            ),
            bool(run.failed),
        )
        for run in runs
    ]


def workers(workers: Sequence[WorkerView]) -> list[Row]:
    """The rows of `WORKERS`."""
    return [
        Row(
            one.name,
            (
                one.kind,
                formatting.shorten(formatting.listed(one.pools, 2), ABOUT_CHARS),
                one.worker,
                formatting.shorten(one.host, 24),
                str(one.pid),
                _places(one),
                _load(one),
                *_calls(one),
                "-" if one.busy is None else f"{one.busy:.0%}",
                f"{one.memory_bytes / 2**20:,.0f} MiB" if one.memory_bytes else "-",
                f"{one.failures:,}",
                since(one.started_s),
                formatting.shorten(one.about, ABOUT_CHARS),
            ),
            one.state != "serving",
        )
        for one in workers
    ]


def queues(view: View) -> list[Row]:
    """The rows of `QUEUES`."""
    return [Row(agent, (agent, *(f"{count:,}" for count in depth))) for agent, depth in view.queues.items()]


def engines(view: View) -> list[Row]:
    """The rows of `ENGINES`: the workers of models."""
    return [
        Row(
            one.name,
            (
                formatting.shorten(formatting.listed(one.pools, 2), ABOUT_CHARS),
                one.worker,
                _places(one),
                _load(one),
                *_calls(one),
                f"{one.failures:,}",
                one.state,
                formatting.shorten(one.about, ABOUT_CHARS),
            ),
            one.state != "serving",
        )
        for one in view.workers
        if one.kind == "model"
    ]


def failures(view: View) -> list[Row]:
    """The rows of `FAILURES`: failed rollouts by what failed, the most frequent first."""
    return [
        Row(
            f"{one.run} {one.environment} {one.error} {one.stage}",
            (
                f"{one.count:,}",
                one.environment,
                formatting.shorten(one.error, ABOUT_CHARS),
                one.stage,
                one.run,
            ),
        )
        for one in view.failures
    ]


def drawn(head: Sequence[str], rows: Sequence[Row], *, without: Sequence[str] = ()) -> Table:
    """A table for a terminal or a pipe, ``without`` some of its columns; a narrow terminal gets fewer."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    shown = [place for place, column in enumerate(head) if column not in without]
    spared = _spared({head[place]: [row.cells[place] for row in rows[:DRAWN]] for place in shown})
    shown = [place for place in shown if head[place] not in spared]
    for column in (head[place] for place in shown):
        first = column in WHOLE
        table.add_column(
            column,
            justify="right" if column in NUMBERS else "left",
            no_wrap=first,
            overflow="ellipsis" if first else "fold",
        )
    for row in rows[:DRAWN]:
        table.add_row(*(escapes.shown(row.cells[place]) for place in shown))
    more = [f"{len(rows) - DRAWN:,} more rows"] if len(rows) > DRAWN else []
    more += [f"not shown, for want of width: {', '.join(spared)}"] if spared else []
    table.caption = f"{'; '.join(more)} (--json has all)" if more else None
    table.caption_justify = "left"
    return table


def _spared(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """The columns that the terminal is too narrow for."""
    widths = {
        name: max(min(SQUEEZED, max(map(len, cells), default=0)), len(name)) + 2
        if name not in WHOLE
        else max(map(len, (name, *cells))) + 2
        for name, cells in columns.items()
    }
    spared: list[str] = []
    room = terminal.output().width
    for name in LEAST:
        if name in widths and sum(widths.values()) > room:
            spared.append(name)
            del widths[name]
    return spared


def drawn_runs(infos: Iterable[RunInfo], progress: Mapping[str, RunProgress]) -> Table:
    """The table of the runs that a broker knows."""
    from gym_view.live import run_view  # it asks systems; other listings need none

    seen = [run_view(info, progress.get(info.run)) for info in infos]
    return drawn(RUNS, runs(seen), without=without_useful(seen))


def without_useful(seen: Iterable[RunView]) -> tuple[str, ...]:
    """The columns to leave out where no run has groups."""
    return () if any(run.useful is not None for run in seen) else ("useful",)


def headline(view: View) -> str:
    """Queues, rates, and where the time of rollouts goes, on one line."""
    waiting = sum(depth for depth, _ in view.queues.values())
    in_flight = sum(taken for _, taken in view.queues.values())
    parts = [f"{waiting:,} waiting, {in_flight:,} in flight"]
    if view.rollouts_per_s is not None:
        parts.append(f"{_rate(view.rollouts_per_s)} rollouts")
    if view.shares:
        parts.append("time: " + ", ".join(f"{hop} {share:.0%}" for hop, share in view.shares.items()))
    return "   ".join(parts)


def since(started_s: float) -> str:
    """How long ago; ``-`` where it is not known."""
    return formatting.span(max(0.0, time.time() - started_s)) if started_s else "-"


def _ago(started_s: float) -> str:
    return f"{since(started_s)} ago" if started_s else "-"


def _places(one: WorkerView) -> str:
    return f"{one.in_use:,} of {one.capacity:,}"


def _load(one: WorkerView) -> str:
    return f"{one.load:.0%}" + (f", {one.state}" if one.state != "serving" else "")


def _calls(one: WorkerView) -> tuple[str, str, str]:
    return _rate(one.calls_per_s), _took(one.p50_s), _took(one.p99_s)


def _rate(per_s: float | None) -> str:
    if per_s is None:
        return "-"
    return formatting.pace(per_s) if per_s else "0"


def _took(seconds: float | None) -> str:
    """
    >>> _took(0.0123), _took(2.5), _took(None)
    ('12 ms', '2.5 s', '-')
    """
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _count(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"
