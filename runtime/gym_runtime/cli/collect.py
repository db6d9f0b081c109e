"""``collect``: the rows of a run that was published elsewhere, into files, as they come."""

from __future__ import annotations

import anyio

from gym_runtime import logs
from gym_runtime.cli.display import Display
from gym_runtime.cli.model_choice import require_broker
from gym_runtime.cli.options import CollectOptions
from gym_runtime.cli.remote import unserved
from gym_runtime.client import connect
from gym_runtime.errors import UsageError
from gym_runtime.files.lock import Lock
from gym_runtime.files.metrics import Metrics
from gym_runtime.files.results import OutputFiles, ResultWriter, write_whole
from gym_runtime.messages.outcomes import RolloutRecord


def collect(options: CollectOptions) -> int:
    """Write a published run's rows to files as they come; the process's exit status."""
    logs.start()
    urls = require_broker(options.broker)
    files = OutputFiles.beside(options.output)
    metrics = Metrics()

    async def main() -> None:
        async with connect(urls, prefix=options.broker.prefix) as gym:
            info = await gym.stored_run(options.run)
            missing: list[str] = []
            if info.state == "active":
                workers = await gym.workers()
                missing = unserved(workers, agents=info.agents, environments=info.environments)
            with ResultWriter(files) as writer, Display(info.total, label=options.run) as display:

                def take(record: RolloutRecord) -> None:
                    writer.write(record)
                    metrics.add(record)
                    display.add(record)

                for line in missing:
                    display.note(line)
                complete = await gym.follow(options.run, info.total, take)
                info = await gym.run(options.run)
                if not complete and info.state == "finished":
                    await gym.stored_run(options.run)
                if complete or info.state == "cancelled":
                    await gym.finish_run(info, state="cancelled" if info.state == "cancelled" else "finished")
            display.final_table(metrics.summary(), run=options.run, files=files, as_json=options.json)

    with Lock(files.rollouts):
        for path in (files.rollouts, files.failures):
            if path.exists() and path.stat().st_size:
                raise UsageError(f"{path} has rows already; choose another -o")
        anyio.run(main, backend_options={"use_uvloop": True})
        write_whole(files.aggregate_metrics, metrics.aggregate())
    return 0 if metrics.summary().mean_reward is not None else 1
