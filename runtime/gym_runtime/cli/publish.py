"""``publish``: rows of a file onto the queue of a running system; ``collect`` fetches their results.

A name that no worker serves now is reported and is not an error: workers may be started later.
"""

from __future__ import annotations

from dataclasses import replace

import anyio

from gym_runtime import logs
from gym_runtime.cli import terminal
from gym_runtime.cli.chosen_rows import require_groups, role_pools, run_info, sources, specs, with_sampling
from gym_runtime.cli.model_choice import (
    parse_role_pools,
    parse_role_sampling,
    parse_row_fields,
    require_broker,
)
from gym_runtime.cli.options import PublishOptions
from gym_runtime.cli.remote import served_model, unserved
from gym_runtime.client import connect
from gym_runtime.files.dataset import open_dataset
from gym_runtime.messages.run_info import new_run_id


def publish(options: PublishOptions) -> str:
    """Put a file's rollouts onto the queue of a running system; returns the run's id."""
    logs.start(lines=True)
    urls = require_broker(options.broker)
    names = (options.environment,) if options.environment else ()
    settings = with_sampling(options.settings, options.sampling)
    settings = replace(
        settings,
        roles=parse_role_pools(options.roles),
        role_sampling=parse_role_sampling(options.role_sampling),
    )
    row_fields = parse_row_fields(options.rows.row_fields)
    run = new_run_id()

    async def main() -> None:
        with open_dataset(
            *sources(names, options.input),
            limit=options.rows.limit,
            shuffle_seed=options.rows.shuffle_seed,
            settings=row_fields,
        ) as dataset:
            require_groups(dataset, settings)
            async with connect(urls, prefix=options.broker.prefix) as gym:
                workers = await gym.workers()
                served = served_model(workers, settings.model_pool)
                model = f"{served.provider}/{served.name}" if served else ""
                info = run_info(dataset, settings, run, dataset.rows * settings.repeats, model)
                await gym.open_run(info)
                await gym.publish(specs(dataset, settings, run, attached=False))
                if (now := await gym.run(run)).closed:
                    # It was cancelled meanwhile, and what was published since then waits for nothing.
                    await gym.close_run(now, state=now.state)
                for line in unserved(
                    workers,
                    agents=info.agents,
                    environments=info.environments,
                    models=[settings.model_pool, *role_pools(info.environments, settings)],
                ):
                    terminal.errors().print(line, soft_wrap=True)

    anyio.run(main, backend_options={"use_uvloop": True})
    return run
