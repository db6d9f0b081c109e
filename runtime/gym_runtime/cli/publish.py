"""``publish``: rows of a file onto the queue of a running system; ``collect`` fetches their results.

A name that no worker serves now is reported and is not an error: workers may be started later.
"""

from __future__ import annotations

from pathlib import Path

from gym_runtime.cli import terminal
from gym_runtime.cli.interruption import sigterm_as_ctrl_c
from gym_runtime.cli.options import (
    BROKER,
    ROLE_POOLS,
    ROLLOUTS,
    ROWS,
    Broker,
    RolePools,
    RolloutsAsked,
    Rows,
)
from gym_runtime.cli.remote import run_async
from gym_runtime.cli.rows import opened, sources
from gym_runtime.client import connect, unserved
from gym_runtime.files.recorded_run import RunPlan


def publish(
    file: Path,
    /,
    *,
    environment: str | None = None,
    rows: Rows = ROWS,
    rollouts: RolloutsAsked = ROLLOUTS,
    roles: RolePools = ROLE_POOLS,
    broker: Broker = BROKER,
) -> None:
    """Put a file's rollouts on the queue of a running system; prints the run's id.

    Args:
        file: Dataset rows, JSONL.
        environment: The environment of rows without an agent_ref.
    """
    urls = broker.required()
    names = (environment,) if environment else ()
    settings = rollouts.chosen(roles=roles.pools())

    # Before there is an event loop, in which Ctrl-C would not end the wait for the rows of a pipe. With the
    # context: a part of the run must not stay behind under an id that was not printed.
    with sigterm_as_ctrl_c(), opened(sources(names, file, rows.limit), rows) as dataset:

        async def main() -> str:
            async with connect(urls, prefix=broker.prefix) as gym:
                info = await gym.publish(dataset, settings)
                for line in unserved(
                    await gym.workers(),
                    agents=info.agents,
                    environments=info.environments,
                    models=[settings.model_pool, *RunPlan(dataset, settings).role_pools],
                ):
                    terminal.note(line)
            return info.run

        print(run_async(main))
