"""``run``: rows in, rollouts made, files out.

It streams: the rows are checked to the end first, then expanded, published and collected side by
side, with no more rollouts on the way than the workers can use. What is collected is on disk within
moments; an interruption at any time leaves whole lines, and ``--resume`` makes what is missing.

Ctrl-C stops the run and keeps what there is; a second one ends everything at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import anyio
import msgspec

from gym_runtime import __version__, clock, logs, tracing
from gym_runtime.cli import terminal
from gym_runtime.cli.display import Display
from gym_runtime.cli.download import fetch_weights
from gym_runtime.cli.main import INTERRUPTED
from gym_runtime.cli.options import EMBEDDED_CONCURRENCY, RunOptions
from gym_runtime.cli.remote import MODEL_POOL, ask, served_model
from gym_runtime.cli.rollouts import run_info, sources, tasks
from gym_runtime.client import connect, make_pools
from gym_runtime.client.recovery import Remains
from gym_runtime.environment import catalogue
from gym_runtime.environment.settings import require_known
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Dataset, open_dataset
from gym_runtime.files.lock import Lock
from gym_runtime.files.manifest import Manifest, load_manifest
from gym_runtime.files.metrics import Metrics
from gym_runtime.files.profile import reward_profiles
from gym_runtime.files.results import InputWriter, OutputFiles, ResultWriter, write_whole
from gym_runtime.files.resume import Progress, start_run
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_info import new_run_id
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, launch

FLUSH_S = 0.2
START_NOTE_S = 2.0
NOTHING_LEFT = (
    "the interrupted run left nothing on this broker: what was in progress is made from the start (a broker "
    "that stays, --nats or --state-dir, keeps it)"
)


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
        self._model_pool = self._run_id
        self._concurrency = options.concurrency
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
        found = sources(options)
        files.refuse_inputs(*(source.path for source in found if source.path != "-"))
        for source in found:
            source.require()
        with Lock(files.rollouts):
            previous = load_manifest(files.manifest) if options.resume else None
            if previous is not None:
                # Attempts that a dead client left may go on: they know the model by the name of its run.
                self._run_id = self._model_pool = previous.run
            self._choose_model()
            if options.input is None:
                self._launch(options.names)
            try:
                with open_dataset(*found, limit=options.limit, settings=options.settings) as dataset:
                    return self._start(files, dataset)
            except BaseException:
                if self._system is not None:
                    self._system.kill()
                raise

    # -- preparing ------------------------------------------------------------------------------------

    def _start(self, files: OutputFiles, dataset: Dataset) -> int:
        manifest = self._manifest(dataset)
        progress = start_run(
            files,
            manifest,
            resume=self._options.resume,
            metrics=self._metrics,
            dataset=dataset,
            tasks=lambda: self._tasks(dataset),
        )
        if self._system is None:
            self._launch(sorted(dataset.environments))
        return anyio.run(self._go, files, dataset, manifest, progress, backend_options={"use_uvloop": True})

    def _choose_model(self) -> None:
        """Take the model of the system that is joined if none was named, else have ours at hand."""
        options = self._options
        if options.leaves_model_open:
            served = served_model(ask(options.nats, options.prefix, lambda gym: gym.workers()))
            if served is not None:
                self._model, self._model_pool = served, MODEL_POOL
                name = f"{served.provider}/{served.name}"
                terminal.errors().print(
                    f"{name} answers, which this system serves as '{MODEL_POOL}'; --model starts another",
                    soft_wrap=True,
                )
        if self._model_pool != MODEL_POOL:
            fetch_weights(self._model)
        if self._model.provider == "embedded":
            self._concurrency = min(self._concurrency, EMBEDDED_CONCURRENCY)

    def _launch(self, environments: Iterable[str]) -> None:
        """Start the workers; they come up while the rows are read."""
        options = self._options
        pools = make_pools(
            tuple(environments),
            None if self._model_pool == MODEL_POOL else self._model,
            agents=(options.agent,) if options.agent else (),
            workers=options.workers,
            concurrency=self._concurrency,
            model_pool=self._model_pool,
        )
        self._system = launch(
            SystemSpec(
                pools=pools,
                nats=options.nats,
                prefix=options.prefix,
                state_dir=options.state_dir,
            )
        )

    def _tasks(self, dataset: Dataset) -> Iterator[RolloutSpec]:
        return tasks(self._options, dataset, self._run_id, model=self._model_pool, attached=True)

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
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch_interrupts, scope)
                await self._ready(system, display)
                group.start_soon(self._watch_system, system, display)
                with display:
                    manifest = await self._make(system.url, files, dataset, progress, display, manifest)
                group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await system.stop(drain=not self._interrupted)
        return self._report(files, manifest, display)

    def _report(self, files: OutputFiles, manifest: Manifest, display: Display) -> int:
        """Write and show what a run comes to; the exit status."""
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

        async with anyio.create_task_group() as group:
            group.start_soon(explain)
            await system.until("all_ready")
            group.cancel_scope.cancel()

    async def _make(
        self,
        url: str,
        files: OutputFiles,
        dataset: Dataset,
        progress: Progress,
        display: Display,
        manifest: Manifest,
    ) -> Manifest:
        """Have the missing rollouts made; the manifest, with the run that they belong to."""
        left = manifest.rollouts - len(progress)
        remains: Remains | None = None
        window = anyio.Semaphore(self._concurrency * 2 + 64)
        with (
            InputWriter(files.materialized_inputs, resume=progress.previous is not None) as inputs,
            ResultWriter(files) as writer,
        ):

            def take(record: RolloutRecord) -> None:
                if remains is None or not remains.has_result(record.task_index, record.rollout_index):
                    window.release()
                writer.write(record)
                self._metrics.add(record)
                display.add(record)
                if display.tally.added == 1:
                    writer.flush()

            async with connect(url, prefix=self._options.prefix) as gym:
                if progress.previous is not None:
                    remains = await gym.take_up(self._run_id, progress)
                    if remains is None:
                        if not progress.previous.counts:
                            display.note(NOTHING_LEFT)
                        self._run_id = new_run_id()
                        manifest = msgspec.structs.replace(manifest, run=self._run_id)
                        manifest.save(files.manifest)
                info = run_info(self._options, dataset, self._run_id, left)
                async with gym.attach(info) as attached, anyio.create_task_group() as group:
                    missing = self._missing(dataset, progress, inputs, remains)
                    group.start_soon(partial(gym.publish, missing, window=window))
                    group.start_soon(_flush, inputs, writer)
                    attached.finished = await gym.follow(
                        self._run_id, left, take, shed=True, skip=progress.settled
                    )
                    group.cancel_scope.cancel()
        return manifest

    def _missing(
        self, dataset: Dataset, progress: Progress, inputs: InputWriter, remains: Remains | None
    ) -> Iterator[RolloutSpec]:
        """The rollouts that are left to be made; all of them, made or not, go to the inputs."""
        for task in self._tasks(dataset):
            inputs.add(task)
            for left in progress.remaining([task]):
                if remains is None:
                    yield left
                elif not remains.has_result(left.task_index, left.rollout_index):
                    yield remains.resumed(left)

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


async def _flush(inputs: InputWriter, writer: ResultWriter) -> None:
    while True:
        await anyio.sleep(FLUSH_S)
        inputs.flush()
        writer.flush()
