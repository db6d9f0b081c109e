"""``publish``: rows of a file onto the queue of a running system. Nobody waits for what comes of them.

What nobody serves just now is said, and no error: workers may be started later.
"""

from __future__ import annotations

import anyio

from gym_runtime import logs
from gym_runtime.cli import terminal
from gym_runtime.cli.options import RunOptions, require_broker
from gym_runtime.cli.remote import MODEL_POOL, unserved
from gym_runtime.cli.rollouts import run_info, sources, tasks
from gym_runtime.client import connect
from gym_runtime.files.dataset import open_dataset
from gym_runtime.messages.run_info import new_run_id


def publish(options: RunOptions) -> str:
    """Put a file's rollouts onto the queue of a running system; returns the run's id."""
    logs.start()
    urls = require_broker(options.nats)
    run = new_run_id()

    async def main() -> None:
        with open_dataset(*sources(options), limit=options.limit, settings=options.settings) as dataset:
            async with connect(urls, prefix=options.prefix) as gym:
                info = run_info(options, dataset, run, dataset.rows * options.repeats)
                await gym.open_run(info)
                await gym.publish(tasks(options, dataset, run))
                for line in unserved(
                    await gym.workers(),
                    agents=info.agents,
                    environments=info.environments,
                    models=[MODEL_POOL],
                ):
                    terminal.errors().print(line, soft_wrap=True)

    anyio.run(main, backend_options={"use_uvloop": True})
    return run
