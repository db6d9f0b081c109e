"""``status``: the workers of a running system and their load, what waits, its active runs; or one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from gym_runtime import clock
from gym_runtime.cli import BROKER, HIDDEN_DEFAULT, AsJson, Broker, ask, formatting, terminal, unserved

if TYPE_CHECKING:
    from gym_runtime import Client
    from gym_runtime.training import Status

RATES = ("per s", "p50", "p99", "core")
"""Columns that need two readings: ``top --once`` has them."""


def status(
    run: Annotated[str, HIDDEN_DEFAULT] = "", /, *, json: AsJson = False, broker: Broker = BROKER
) -> None:
    """Show a running system: its workers and their load, what waits, which runs are active.

    Args:
        run: Show this run only, whether it is over or not, and who cancelled it or parts of it.
    """
    if run:
        _show_run(run, broker, as_json=json)
        return
    found = ask(broker, lambda gym: gym.status())
    if json:
        from gym_view.state_json import full_status  # here, because the command's help does not need it

        terminal.print_json(full_status(found))
    else:
        _show_status(found)


def _show_run(run: str, broker: Broker, *, as_json: bool) -> None:
    from gym_view import system_tables
    from gym_view.state_json import full_run

    async def look(gym: Client):
        info = await gym.run(run)
        return info, await gym.progress([info]), await gym.driver.cancelled_parts(run)

    info, progress, parts = ask(broker, look)
    if as_json:
        said = {part: msgspec.structs.asdict(asked) for part, asked in parts.items()}
        terminal.print_json({**full_run(info, progress), "cancelled_parts": said})
        return
    console = terminal.output()
    console.print(system_tables.drawn_runs([info], progress))
    if info.state == "cancelled":
        console.print(formatting.cancelled(info.cancelled_by, info.cancelled_s), soft_wrap=True)
    for part, asked in parts.items():
        line = f"{run}.{part} {formatting.cancelled(asked.by, asked.at_s)}"
        console.print(formatting.shorten(line, 300), soft_wrap=True)


def _show_status(found: Status) -> None:
    from gym_view import system_tables
    from gym_view.limit import limit
    from gym_view.live import Reading, view

    console = terminal.output()
    now = view(Reading(clock.monotonic(), found))
    if not found.workers:
        console.print("no workers are alive; 'gym-runtime start --nats URL' starts some")
    else:
        console.print(limit(now), soft_wrap=True)
        console.print()
        console.print(
            system_tables.drawn(system_tables.WORKERS, system_tables.workers(now.workers), without=RATES)
        )
    console.print()
    if now.queues:
        console.print(system_tables.drawn(system_tables.QUEUES, system_tables.queues(now)))
        console.print()
    active = [run for run in found.runs if run.state == "active"]
    if active:
        console.print(system_tables.drawn_runs(active, found.progress))
        agents = sorted({name for run in active for name in run.agents})
        environments = sorted({name for run in active for name in run.environments})
        for line in unserved(found.workers, agents=agents, environments=environments):
            console.print(line, soft_wrap=True)
    else:
        console.print("no run is active")
