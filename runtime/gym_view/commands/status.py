"""``status``: the workers of a running system, their load, what waits, which runs are active; or one run."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from gym_runtime import clock
from gym_runtime.cli import BROKER, HIDDEN_DEFAULT, AsJson, Broker, ask, formatting, terminal
from msgspec.structs import replace

if TYPE_CHECKING:
    from gym_runtime import Client
    from gym_runtime.client import Asked, Counter, RunProgress
    from gym_runtime.training import RunInfo

    from gym_view.live import Reading

RATES = ("per s", "p50", "p99", "core")
"""Columns that need two readings."""
SHOWN_ALARMS = 5
BETWEEN_S = 1.0
"""From one reading to the next."""
COUNTED, COUNTING_S = 2_000, 5.0
"""The most stored results of a run that are read for its mean reward, and how long that may take."""


def status(
    run: Annotated[str, HIDDEN_DEFAULT] = "", /, *, json: AsJson = False, broker: Broker = BROKER
) -> None:
    """Show a running system: its workers and their load, what waits, which runs are active.

    Args:
        run: Show this run only: its mean reward so far, and who cancelled it or parts of it.
    """
    if run:
        _show_run(*ask(broker, partial(_look_at_run, run)), as_json=json)
    elif json:
        from gym_view.state_json import full_status  # here, because the command's help does not need it

        terminal.print_json(full_status(*ask(broker, look)))
    else:
        _show_status(*ask(broker, look))


async def look(gym: Client) -> tuple[Reading, Reading | None]:
    """A reading of a system, and one a second before if rollouts are on the way: rates need two."""
    import anyio

    from gym_view.live import Reading

    first = Reading(clock.monotonic(), await gym.status())
    queues = first.status.queues.values()
    if not any(depth.waiting or depth.in_flight for depth in queues):
        return first, None
    await anyio.sleep(BETWEEN_S)
    return Reading(clock.monotonic(), await gym.status()), first


def _show_status(reading: Reading, before: Reading | None) -> None:
    from gym_runtime.client import unserved

    from gym_view import system_tables
    from gym_view.limit import limit
    from gym_view.live import has_all, view

    console = terminal.output()
    now, found = view(reading, before), reading.status
    if not found.workers:
        console.print("no workers are alive; 'gym-runtime start --nats URL' starts some")
    else:
        console.print(limit(now), soft_wrap=True)
        console.print()
        console.print(
            system_tables.drawn(
                system_tables.WORKERS,
                system_tables.workers(now.workers),
                without=() if before else RATES,
            )
        )
    console.print()
    if now.queues:
        console.print(system_tables.drawn(system_tables.QUEUES, system_tables.queues(now)))
        console.print()
    active = [run for run in found.runs if run.state == "active"]
    if active:
        console.print(system_tables.drawn_runs(active, found.progress))
        for run in active:
            _show_alarms(run, found.progress.get(run.run))
        waiting = [run for run in active if not has_all(run, found.progress.get(run.run))]
        agents = sorted({name for run in waiting for name in run.agents})
        environments = sorted({name for run in waiting for name in run.environments})
        models = sorted({name for run in waiting for name in run.models})
        for line in unserved(found.workers, agents=agents, environments=environments, models=models):
            console.print(line, soft_wrap=True)
    else:
        console.print("no run is active")


def _show_alarms(info: RunInfo, progress: RunProgress | None) -> None:
    """The alarms of a run; its client may be of anyone."""
    for alarm in progress.alarms[:SHOWN_ALARMS] if progress else ():
        said = f"{info.run}: {alarm}, {', '.join(alarm.rollouts[3:])}".rstrip(", ")
        terminal.output().print(
            formatting.shorten(said, 1000), soft_wrap=True, markup=False, style="bold red"
        )


async def _look_at_run(run: str, gym: Client) -> tuple[RunInfo, RunProgress, dict[str, Asked]]:
    """A run; what no client has counted yet is counted in the results that the broker stores."""
    info = await gym.driver.run(run)
    progress = (await gym.progress([info]))[run]
    if (counter := await counted(gym, info, progress)) is not None:
        progress = replace(progress, figures=counter.figures(), failed=counter.failed)
    return info, progress, await gym.driver.cancelled_parts(run)


async def counted(gym: Client, info: RunInfo, progress: RunProgress) -> Counter | None:
    """The stored results of a run, `COUNTED` of them at most; None if a client counts them or has done so."""
    import anyio
    from gym_runtime.client import Counter, stored_results
    from gym_runtime.messages import is_comparison

    stored = min(progress.done or 0, COUNTED)
    if progress.figures is not None or info.state != "active" or not stored:
        return None
    counter = Counter(repeats=info.repeats)
    with anyio.move_on_after(COUNTING_S):
        async with aclosing(stored_results(gym.driver.bus, info.run)) as results:
            async for result in results:
                if not is_comparison(result.record.rollout_index):
                    counter.add(result.record)
                if counter.done == stored:
                    break
    return counter


def _show_run(info: RunInfo, progress: RunProgress, parts: dict[str, Asked], *, as_json: bool) -> None:
    from gym_runtime.messages.metric_names import ROLLOUTS

    from gym_view import system_tables
    from gym_view.live import useful_shares
    from gym_view.state_json import full_run

    if as_json:
        said = {part: msgspec.structs.asdict(asked) for part, asked in parts.items()}
        terminal.print_json({**full_run(info, {info.run: progress}), "cancelled_parts": said})
        return
    console = terminal.output()
    console.print(system_tables.drawn_runs([info], {info.run: progress}))
    _show_alarms(info, progress)
    if info.state == "cancelled":
        console.print(formatting.cancelled(info.cancelled_by, info.cancelled_s), soft_wrap=True)
    for part, asked in parts.items():
        line = f"{info.run}.{part} {formatting.cancelled(asked.by, asked.at_s)}"
        console.print(formatting.shorten(line, 300), soft_wrap=True)
    figures = progress.figures
    shares = useful_shares(figures) if figures else {}
    if len(shares) > 1:
        said = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        console.print(f"useful tokens per sampled token: {formatting.shorten(said, 300)}", soft_wrap=True)
    counted = sum(one.value for one in figures.counts if one.name == ROLLOUTS.name) if figures else 0
    if progress.done is not None and counted < progress.done:
        terminal.note(f"failed and reward are of {counted:,.0f} results so far")
