"""``run``, ``publish`` and ``collect``: rows in, rollouts made, files out.

A run streams: the rows are checked to the end first, then expanded, published and collected side by
side, with no more rollouts on the way than the workers can use. What is collected is on disk within
moments; an interruption at any time leaves whole lines, and ``--resume`` makes what is missing.

Ctrl-C stops the run and keeps what there is; a second one ends everything at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import msgspec

from gym_runtime import __version__, catalogue, clock, logs, tracing
from gym_runtime.cli.display import Display
from gym_runtime.cli.download import fetch_weights
from gym_runtime.cli.options import EMBEDDED_CONCURRENCY, CollectOptions, RunOptions, require_broker
from gym_runtime.client import connect, make_pools
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Dataset, Source, open_dataset
from gym_runtime.files.lock import Lock
from gym_runtime.files.manifest import Manifest
from gym_runtime.files.metrics import Metrics
from gym_runtime.files.profile import reward_profiles
from gym_runtime.files.results import InputWriter, OutputFiles, ResultWriter, write_whole
from gym_runtime.files.resume import Progress, start_run
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.tasks import RolloutTask
from gym_runtime.runs import RunInfo, new_run_id
from gym_runtime.settings import require_known
from gym_runtime.system import System, launch
from gym_runtime.workers.spec import SystemSpec

FLUSH_S = 0.2
START_NOTE_S = 2.0
INTERRUPTED = 130


def run(options: RunOptions) -> int:
    """Everything in one; the process's exit status.

    Raises:
        UsageError: something is wrong with the arguments, the rows, the model or the disk; what was
            collected is on disk.
    """
    logs.start()
    tracing.start("gym-runtime")
    try:
        return _Run(options).run()
    finally:
        tracing.stop()


class _Run:
    """One ``gym-runtime run``."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._run_id = new_run_id()
        self._model = options.model_settings()
        self._concurrency = options.concurrency
        if self._model.provider == "embedded":
            self._concurrency = min(self._concurrency, EMBEDDED_CONCURRENCY)
        self._label = ", ".join(Path(name).stem for name in options.names)
        self._metrics = Metrics()
        self._interrupted = False
        self._system: System | None = None

    def run(self) -> int:
        options = self._options
        environments = [catalogue.environment(name) for name in options.names]
        for environment in environments:
            catalogue.require(environment)
        if options.input is None:
            require_known(options.settings, environments)
        files = OutputFiles.beside(options.output_path)
        sources = _sources(options)
        files.refuse_inputs(*(source.path for source in sources if source.path != "-"))
        for source in sources:
            source.require()
        with Lock(files.rollouts):
            fetch_weights(self._model)
            if options.input is None:
                self._launch(options.names)
            try:
                with open_dataset(*sources, limit=options.limit, settings=options.settings) as dataset:
                    manifest = self._manifest(dataset)
                    progress = start_run(
                        files,
                        manifest,
                        resume=options.resume,
                        metrics=self._metrics,
                        dataset=dataset,
                        tasks=lambda: self._tasks(dataset),
                    )
                    if self._system is None:
                        self._launch(sorted(dataset.environments))
                    return anyio.run(
                        self._go, files, dataset, manifest, progress, backend_options={"use_uvloop": True}
                    )
            except BaseException:
                if self._system is not None:
                    self._system.kill()
                raise

    # -- preparing ------------------------------------------------------------------------------------

    def _launch(self, environments: Iterable[str]) -> None:
        """Start the workers; they come up while the rows are read."""
        options = self._options
        pools = make_pools(
            tuple(environments),
            self._model,
            agents=(options.agent,) if options.agent else (),
            workers=options.workers,
            concurrency=self._concurrency,
            model_pool=self._run_id,
        )
        self._system = launch(
            SystemSpec(
                pools=pools,
                nats=options.nats,
                prefix=options.prefix,
                state_dir=options.state_dir,
            )
        )

    def _tasks(self, dataset: Dataset) -> Iterator[RolloutTask]:
        options = self._options
        return expand(
            dataset.read(),
            run=self._run_id,
            repeats=options.repeats,
            sampling=options.sampling,
            add_seed=options.seed_repeats,
            agent=options.agent,
            model=self._run_id,
            timeout_s=options.timeout_s,
            max_attempts=options.max_attempts,
            durability=options.durability,
            max_turns=options.max_turns,
            return_tokens=options.return_token_ids,
            max_staleness=options.max_staleness,
            attended=True,
            numbering=dataset.numbering(),
        )

    def _manifest(self, dataset: Dataset) -> Manifest:
        options = self._options
        return Manifest(
            run=self._run_id,
            digest=dataset.digest,
            rows=dataset.rows,
            rollouts=dataset.rows * options.repeats,
            settings={
                "environments": dict(dataset.environments),
                "agent": options.agent,
                "model": f"{self._model.provider}/{self._model.name}",
                "model_options": self._model.options,
                "sampling": options.sampling,
                "repeats": options.repeats,
                "limit": options.limit,
                "seed_repeats": options.seed_repeats,
                "max_turns": options.max_turns,
                "return_token_ids": options.return_token_ids,
                "settings": options.settings or None,
            },
            notes={"input": str(options.input or ""), "model_urls": list(self._model.urls)},
            started_s=clock.now(),
            version=__version__,
        )

    # -- running --------------------------------------------------------------------------------------

    async def _go(self, files: OutputFiles, dataset: Dataset, manifest: Manifest, progress: Progress) -> int:
        assert self._system is not None
        system = self._system
        display = Display(
            manifest.rollouts,
            label=self._label,
            before=self._metrics.summary() if len(progress) else None,
        )
        for notice in progress.notices:
            display.note(notice)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_interrupts, scope)
                await self._ready(system, display)
                tasks.start_soon(self._watch_system, system, display)
                with display:
                    await self._make(system.url, files, dataset, progress, display, manifest.rollouts)
                tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await system.stop(drain=not self._interrupted)
        summary = self._metrics.summary()
        msgspec.structs.replace(manifest, counts=summary.outcomes).save(files.manifest)
        write_whole(files.aggregate_metrics, self._metrics.aggregate())
        write_whole(files.reward_profiling, reward_profiles(files.materialized_inputs, self._metrics))
        display.final_table(
            summary,
            run=self._run_id,
            files=files,
            parts={name: self._metrics.summary(name) for name in self._metrics.agents},
            as_json=self._options.json,
        )
        if self._interrupted:
            display.note("interrupted; run the same command with --resume to make the other rollouts")
            return INTERRUPTED
        return 0 if summary.mean_reward is not None else 1

    async def _ready(self, system: System, display: Display) -> None:
        """Wait until the workers are up; say so when that takes a while."""

        async def explain() -> None:
            await anyio.sleep(START_NOTE_S)
            display.note("starting the workers …")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(explain)
            await system.until("all_ready")
            tasks.cancel_scope.cancel()

    async def _make(
        self,
        url: str,
        files: OutputFiles,
        dataset: Dataset,
        progress: Progress,
        display: Display,
        total: int,
    ) -> None:
        left = total - len(progress)
        window = anyio.Semaphore(self._concurrency * 2 + 64)
        async with AsyncExitStack() as stack:
            inputs = stack.enter_context(
                InputWriter(files.materialized_inputs, resume=progress.previous is not None)
            )
            writer = stack.enter_context(ResultWriter(files))
            gym = await stack.enter_async_context(connect(url, prefix=self._options.prefix))
            info = RunInfo(
                run=self._run_id,
                total=left,
                environments=sorted(dataset.environments),
                agents=_agents(self._options, dataset),
                created_s=clock.now(),
            )

            def todo() -> Iterator[RolloutTask]:
                for task in self._tasks(dataset):
                    inputs.add(task)
                    yield from progress.remaining([task])

            async def publish() -> None:
                await gym.publish(todo(), window=window)

            async def flush() -> None:
                while True:
                    await anyio.sleep(FLUSH_S)
                    inputs.flush()
                    writer.flush()

            def take(record: RolloutRecord) -> None:
                window.release()
                writer.write(record)
                self._metrics.add(record)
                display.add(record)
                if display.tally.added == 1:
                    writer.flush()

            async with gym.attend(info) as attended, anyio.create_task_group() as tasks:
                tasks.start_soon(publish)
                tasks.start_soon(flush)
                attended.finished = await gym.follow(self._run_id, left, take)
                tasks.cancel_scope.cancel()

    async def _watch_interrupts(self, scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                if self._interrupted:
                    if self._system is not None:
                        self._system.kill()
                    os._exit(INTERRUPTED)
                self._interrupted = True
                scope.cancel()

    async def _watch_system(self, system: System, display: Display) -> None:
        async for event in system.events():
            if event.event == "restarted":
                display.note(f"{event.reason}; it is started again, and what it had goes on")
        raise UsageError("the workers are gone; what is written is complete, go on with --resume")


# -- publish and collect --------------------------------------------------------------------------------


def publish(options: RunOptions) -> str:
    """Put a file's rollouts onto the queue of a running system; returns the run's id."""
    logs.start()
    urls = require_broker(options.nats)
    run_id = new_run_id()

    async def main() -> None:
        with open_dataset(*_sources(options), limit=options.limit, settings=options.settings) as dataset:
            async with connect(urls, prefix=options.prefix) as gym:
                info = RunInfo(
                    run=run_id,
                    total=dataset.rows * options.repeats,
                    environments=sorted(dataset.environments),
                    agents=_agents(options, dataset),
                    created_s=clock.now(),
                )
                await gym.open_run(info)
                tasks = expand(
                    dataset.read(),
                    run=run_id,
                    repeats=options.repeats,
                    sampling=options.sampling,
                    add_seed=options.seed_repeats,
                    agent=options.agent,
                    timeout_s=options.timeout_s,
                    max_attempts=options.max_attempts,
                    durability=options.durability,
                    max_turns=options.max_turns,
                    return_tokens=options.return_token_ids,
                    max_staleness=options.max_staleness,
                    numbering=dataset.numbering(),
                )
                await gym.publish(tasks)

    anyio.run(main, backend_options={"use_uvloop": True})
    return run_id


def collect(options: CollectOptions) -> int:
    """Write a published run's rows to files as they come; the process's exit status."""
    logs.start()
    urls = require_broker(options.nats)
    files = OutputFiles.beside(options.output)
    metrics = Metrics()

    async def main() -> None:
        async with connect(urls, prefix=options.prefix) as gym:
            info = await gym.run(options.run)
            with ResultWriter(files) as writer, Display(info.total, label=options.run) as display:

                def take(record: RolloutRecord) -> None:
                    writer.write(record)
                    metrics.add(record)
                    display.add(record)

                if await gym.follow(options.run, info.total, take):
                    await gym.finish_run(info)
            display.final_table(metrics.summary(), run=options.run, files=files, as_json=options.json)

    with Lock(files.rollouts):
        if files.rollouts.exists() and files.rollouts.stat().st_size:
            raise UsageError(f"{files.rollouts} has rows already; choose another -o")
        anyio.run(main, backend_options={"use_uvloop": True})
        write_whole(files.aggregate_metrics, metrics.aggregate())
    return 0


# -- from options to what the runtime takes -----------------------------------------------------------------


def _agents(options: RunOptions, dataset: Dataset) -> list[str]:
    """The agents that a run's rollouts wait for."""
    if options.agent is not None:
        return [options.agent]
    names = options.names or tuple(dataset.environments)
    return sorted({catalogue.environment(name).definition.agent for name in names})


def _sources(options: RunOptions) -> list[Source]:
    if options.input is not None:
        return [Source(str(options.input), options.names[0] if len(options.names) == 1 else None)]
    if not options.names:
        raise UsageError("say what to run: gym-runtime run NAME, or -i FILE with rows that carry agent_ref")
    return [Source(str(catalogue.environment(name).examples), name) for name in options.names]
