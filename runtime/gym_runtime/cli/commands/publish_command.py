"""``publish``: rows of a file onto the queue of a running system; ``collect`` fetches their results.

A name that no worker serves now is reported and is not an error: workers may be started later.
"""

from __future__ import annotations

from dataclasses import replace

import anyio

from gym_runtime.cli import terminal
from gym_runtime.cli.chosen_rows import sources, with_sampling
from gym_runtime.cli.model_choice import (
    parse_agent_options,
    parse_role_pools,
    parse_role_sampling,
    parse_row_fields,
    require_broker,
)
from gym_runtime.cli.options.run_options import PublishOptions
from gym_runtime.cli.remote import unserved
from gym_runtime.client import connect
from gym_runtime.files.dataset import open_dataset
from gym_runtime.files.recorded_run import RunPlan
from gym_runtime.messages.stored_records import RunInfo


def publish(options: PublishOptions) -> str:
    """Put a file's rollouts onto the queue of a running system; returns the run's id."""
    urls = require_broker(options.broker)
    names = (options.environment,) if options.environment else ()
    settings = with_sampling(options.settings, options.sampling)
    settings = replace(
        settings,
        roles=parse_role_pools(options.roles),
        role_sampling=parse_role_sampling(options.role_sampling),
        agent_options=parse_agent_options(options.agent_options),
    )
    row_fields = parse_row_fields(options.rows.row_fields)

    async def main() -> RunInfo:
        with open_dataset(
            *sources(names, options.input, options.rows.limit),
            limit=options.rows.limit,
            shuffle_seed=options.rows.shuffle_seed,
            settings=row_fields,
        ) as dataset:
            async with connect(urls, prefix=options.broker.prefix) as gym:
                info = await gym.publish(dataset, settings)
                for line in unserved(
                    await gym.workers(),
                    agents=info.agents,
                    environments=info.environments,
                    models=[settings.model_pool, *RunPlan(dataset, settings).role_pools],
                ):
                    terminal.errors().print(line, soft_wrap=True)
        return info

    return anyio.run(main, backend_options={"use_uvloop": True}).run
