"""``status``: the workers of a running system and their load, what waits, which runs are active."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from gym_runtime import clock
from gym_runtime.cli import BROKER, AsJson, Broker, ask, terminal, unserved

if TYPE_CHECKING:
    from gym_runtime import Client

    from gym_view.live import Reading

RATES = ("per s", "p50", "p99", "core")
"""Columns that need two readings."""
BETWEEN_S = 1.0
"""From one reading to the next."""


def status(*, json: AsJson = False, broker: Broker = BROKER) -> None:
    """Show a running system: its workers and their load, what waits, which runs are active."""
    if json:
        from gym_view.state_json import full_status  # here, because the command's help does not need it

        terminal.print_json(full_status(*ask(broker, look)))
    else:
        _show_status(*ask(broker, look))


async def look(gym: Client) -> tuple[Reading, Reading | None]:
    """A reading of a system, and one a second before if rollouts are on the way: rates need two."""
    from gym_view.live import Reading

    first = Reading(clock.monotonic(), await gym.status())
    queues = first.status.queues.values()
    if not any(depth.waiting or depth.in_flight for depth in queues):
        return first, None
    await anyio.sleep(BETWEEN_S)
    return Reading(clock.monotonic(), await gym.status()), first


def _show_status(reading: Reading, before: Reading | None) -> None:
    from gym_view import system_tables
    from gym_view.limit import limit
    from gym_view.live import view

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
        agents = sorted({name for run in active for name in run.agents})
        environments = sorted({name for run in active for name in run.environments})
        for line in unserved(found.workers, agents=agents, environments=environments):
            console.print(line, soft_wrap=True)
    else:
        console.print("no run is active")
