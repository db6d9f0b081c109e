"""``run``: rows in, rollouts made, files out.

It streams: the rows are checked to the end first, then expanded, published and collected side by
side, with no more rollouts on the way than the workers can use. What is collected is on disk within
moments; an interruption at any time leaves whole lines, and ``--resume`` makes what is missing.

Ctrl-C stops the run and keeps what there is; a second one ends everything at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import msgspec

from gym_runtime import __version__, clock, logs, tracing
from gym_runtime.cli import result, terminal
from gym_runtime.cli.budget import Budget
from gym_runtime.cli.chosen_rows import require_groups, run_info, sources, specs, with_sampling
from gym_runtime.cli.display import Display
from gym_runtime.cli.download import fetch_weights
from gym_runtime.cli.interruption import INTERRUPTED, MORE, RESUME, terminable
from gym_runtime.cli.model_choice import (
    POLICY,
    parse_model,
    parse_role_sampling,
    parse_roles,
    parse_row_fields,
    with_file,
)
from gym_runtime.cli.options import EMBEDDED_CONCURRENCY, RunOptions
from gym_runtime.cli.remote import ask, served_model
from gym_runtime.client import Client, connect, make_pools
from gym_runtime.client.recovery import Remains
from gym_runtime.client.roles import require_declared, require_roles
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.settings import require_known
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Dataset, open_dataset
from gym_runtime.files.lock import Lock
from gym_runtime.files.manifest import Manifest, load_manifest
from gym_runtime.files.metrics import Metrics
from gym_runtime.files.profile import reward_profiles
from gym_runtime.files.results import InputWriter, OutputFiles, ResultWriter, write_whole
from gym_runtime.files.resume import Progress, start_run
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_info import new_run_id
from gym_runtime.metrics.push import pushing
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, launch
from gym_runtime.timing import ENGINE_LOOK_S, FLUSH_S, START_NOTE_S
from gym_runtime.trackers.tracker import About
from gym_runtime.trackers.tracking import Tracking
from gym_runtime.workers.adapter import ModelSettings

COMPLETE = "the run is complete: nothing is left to make; --extend makes it larger"
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
    logs.start(lines=True)
    terminal.note_untested_python()
    logs.export("gym-runtime")
    tracing.start("gym-runtime")
    try:
        return _Run(options).run()
    finally:
        tracing.stop()
        logs.stop_export()


class _Run:
    """One ``gym-runtime run``."""

    def __init__(self, options: RunOptions) -> None:
        self._options, self._file_models = with_file(options)
        self._run_id = new_run_id()
        self._named_roles = parse_roles(self._options.roles)
        self._role_models: dict[str, ModelSettings] = {}
        file_model = self._file_policy()
        self._model = parse_model(options.model, file_model)
        self._model_left_open = bool(self._options.broker.urls) and not (options.model or file_model)
        # The model that a run starts for itself is served under a name that no other run asks for.
        self._settings = replace(
            with_sampling(options.settings, options.sampling),
            model_pool=self._run_id,
            role_sampling=parse_role_sampling(options.role_sampling),
        )
        self._row_fields = parse_row_fields(options.rows.row_fields)
        self._concurrency = options.concurrency
        self._label = ", ".join(Path(name).stem for name in options.names)
        self._metrics = Metrics()
        self._budget = Budget(options.budget)
        self._over_budget = ""
        self._making: anyio.CancelScope | None = None
        self._system: System | None = None
        self._tracking: Tracking | None = None

    def run(self) -> int:
        options = self._options
        if options.extend and not options.resume:
            raise UsageError("--extend is for a run that exists: --resume --extend")
        if options.overwrite and options.resume:
            raise UsageError("--overwrite begins a new run, --resume continues one: leave one of them out")
        environments = [catalogue.environment(name) for name in options.names]
        for environment in environments:
            requirements.require(environment)
        if options.input is None:
            require_known(self._row_fields, environments)
        files = OutputFiles.beside(options.output_path)
        found = sources(options.names, options.input)
        files.refuse_inputs(*(source.path for source in found if source.path != "-"))
        for source in found:
            source.require()
        with Lock(files.rollouts):
            previous = load_manifest(files.manifest) if options.resume else None
            if previous is not None:
                # Attempts that a dead client left may go on: they know the model by the name of its run.
                self._run_id = previous.run
                self._settings = replace(self._settings, model_pool=self._run_id)
            self._choose_model()
            if options.input is None and not options.resume:
                self._choose_roles(options.names)
                self._launch(options.names)
            try:
                with open_dataset(
                    *found,
                    limit=options.rows.limit,
                    shuffle_seed=options.rows.shuffle_seed,
                    settings=self._row_fields,
                    earlier_rows=previous.rows if previous else None,
                ) as dataset:
                    return self._start(files, dataset)
            except BaseException:
                if self._system is not None:
                    self._system.kill()
                if self._tracking is not None:
                    self._tracking.close(failed=True)
                raise

    # -- preparing ------------------------------------------------------------------------------------

    def _start(self, files: OutputFiles, dataset: Dataset) -> int:
        if self._system is None:
            self._choose_roles([catalogue.address(name) for name in sorted(dataset.environments)])
        require_groups(dataset, self._settings)
        manifest = self._manifest(dataset)
        progress = start_run(
            files,
            manifest,
            resume=self._options.resume,
            extend=self._options.extend,
            overwrite=self._options.overwrite,
            metrics=self._metrics,
            dataset=dataset,
            tasks=lambda: self._specs(dataset),
        )
        display = Display(
            manifest.rollouts,
            label=self._label,
            before=self._metrics.summary() if len(progress) else None,
        )
        for notice in progress.notices:
            display.note(notice)
        if len(progress) >= manifest.rollouts:
            display.note(COMPLETE)
            return self._report(files, manifest, display, interrupted=False)
        self._over_budget = self._budget.reached(self._metrics)
        if self._over_budget:
            return self._report(files, manifest, display, interrupted=True)
        self._track(files, manifest, display)
        if self._system is None:
            self._launch(catalogue.address(name) for name in sorted(dataset.environments))
        interrupted = anyio.run(
            partial(self._go, files, dataset, progress, display, manifest),
            backend_options={"use_uvloop": True},
        )
        with terminable():  # the event loop has put SIGTERM back to its default
            return self._report(files, manifest, display, interrupted=interrupted)

    def _track(self, files: OutputFiles, manifest: Manifest, display: Display) -> None:
        """Begin the run in the tracker that was asked for."""
        name = self._options.track
        if name is None:
            return
        settings = {key: value for key, value in manifest.settings.items() if value is not None}
        about = About(
            run=self._run_id,
            folder=files.rollouts.with_name(f"{files.rollouts.stem}_tensorboard"),
            settings=settings,
        )
        before = self._metrics.summary() if self._metrics.rollouts else None
        repeats = self._settings.repeats
        tracking = Tracking(name, about, display.note, repeats=repeats, before=before)
        tracking.open()
        self._tracking = tracking

    def _choose_model(self) -> None:
        """Take the model of the system that is joined if none was named, else have ours at hand."""
        options = self._options
        if self._model_left_open:
            pool = options.settings.model_pool
            served = served_model(ask(options.broker, lambda gym: gym.workers()), pool)
            if served is not None:
                self._model, self._settings = served, replace(self._settings, model_pool=pool)
                name = f"{served.provider}/{served.name}"
                terminal.errors().print(
                    f"{name} answers, which this system serves as '{pool}'; --model starts another",
                    soft_wrap=True,
                )
        if self._model.provider == "embedded":
            self._concurrency = min(self._concurrency, EMBEDDED_CONCURRENCY)
        per_minute = self._model.requests_per_minute
        if options.model.requests_per_minute and not self._serves_model:
            raise UsageError(
                "--requests-per-minute is for a model that the run starts (--model PROVIDER/NAME); "
                "a system says it of the models that it serves in its file: requests_per_minute"
            )
        if per_minute and self._serves_model:
            # More rollouts in flight than requests in a minute would only wait, and use up their time.
            self._concurrency = max(1, min(self._concurrency, round(per_minute)))

    def _file_policy(self) -> ModelSettings | None:
        """The policy of the configuration file: the pool of that name, else the first that is no role's."""
        models = self._file_models
        roles = {*self._named_roles, *_declared(self._options.names)}
        others = [name for name in models if name not in roles]
        return models.get(POLICY) or (models[others[0]] if others else None)

    def _choose_roles(self, environments: Sequence[str]) -> None:
        """Say which pool serves each role: one of ours, the policy's, or one of the system that is joined.

        Raises:
            UsageError: a role has no model, or a model was named for a role that no environment has.
        """
        named, roles = self._named_roles, _declared(environments)
        if not self._options.settings.agent:
            require_declared(sorted({*named, *self._settings.role_sampling}), environments)
        pools: dict[str, str] = {}
        for name in sorted(roles | named.keys()):
            model = named[name] if name in named else self._file_models.get(name)
            if model is not None:
                fetch_weights(model)
                pools[name] = f"{self._run_id}-{name}"
                self._role_models[name] = model
            elif name in named:
                pools[name] = self._settings.model_pool
        missing = roles - pools.keys()
        if missing and self._options.broker.urls:
            workers = ask(self._options.broker, lambda gym: gym.workers())
            pools |= {name: name for name in missing if served_model(workers, name)}
        require_roles(environments, pools, _how_to_name)
        self._settings = replace(self._settings, roles=pools)
        if any(model.provider == "embedded" for model in self._role_models.values()):
            self._concurrency = min(self._concurrency, EMBEDDED_CONCURRENCY)

    def _launch(self, environments: Iterable[str]) -> None:
        """Start the workers; they come up while the rows are read."""
        options = self._options
        if self._serves_model:
            fetch_weights(self._model)
        pools = make_pools(
            tuple(environments),
            self._model if self._serves_model else None,
            agents=(options.settings.agent,) if options.settings.agent else (),
            workers=options.workers,
            concurrency=self._concurrency,
            model_pool=self._settings.model_pool,
            roles={self._settings.roles[role]: model for role, model in self._role_models.items()},
        )
        self._system = launch(
            SystemSpec(
                pools=pools,
                nats=options.broker.urls,
                prefix=options.broker.prefix,
                state_dir=options.state_dir,
                log_lines=True,
            )
        )

    @property
    def _serves_model(self) -> bool:
        """Whether this run starts the model that it asks."""
        return self._settings.model_pool == self._run_id

    def _specs(self, dataset: Dataset) -> Iterator[RolloutSpec]:
        return specs(dataset, self._settings, self._run_id, attached=True)

    def _manifest(self, dataset: Dataset) -> Manifest:
        options, settings = self._options, self._settings
        return Manifest(
            run=self._run_id,
            digest=dataset.digest,
            rows=dataset.rows,
            rollouts=dataset.rows * settings.repeats,
            settings={
                "environments": dict(dataset.environments),
                "agent": settings.agent,
                "model": f"{self._model.provider}/{self._model.name}",
                "model_options": self._model.options,
                "roles": {role: self._role_model(role) for role in sorted(settings.roles)} or None,
                "role_sampling": settings.role_sampling or None,
                "sampling": settings.sampling,
                "repeats": settings.repeats,
                "limit": options.rows.limit,
                "shuffle_seed": options.rows.shuffle_seed,
                "seed_repeats": settings.seed_repeats,
                "max_turns": settings.max_turns,
                "return_token_ids": settings.return_tokens,
                "settings": self._row_fields or None,
            },
            notes={"input": str(options.input or ""), "model_urls": list(self._model.urls)},
            started_s=clock.now(),
            version=__version__,
        )

    def _role_model(self, role: str) -> str:
        """What answers in a role, the same for every part of a run that is resumed."""
        model = self._role_models.get(role)
        if model is not None:
            return f"{model.provider}/{model.name}"
        own = self._settings.roles[role] == self._settings.model_pool
        return POLICY if own else f"pool {self._settings.roles[role]}"

    # -- running --------------------------------------------------------------------------------------

    async def _go(
        self, files: OutputFiles, dataset: Dataset, progress: Progress, display: Display, manifest: Manifest
    ) -> bool:
        """Make the rollouts and stop the system; whether a signal ended it."""
        assert self._system is not None
        system = self._system
        making = self._making = anyio.CancelScope()
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with anyio.create_task_group() as listening:
                listening.start_soon(self._watch_interrupts, signals, making)
                with making:
                    async with anyio.create_task_group() as group:
                        await self._ready(system, display)
                        group.start_soon(self._watch_system, system, display)
                        with display:
                            await self._make(system.url, files, dataset, progress, display, manifest)
                        group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await system.stop(drain=not making.cancelled_caught)
                listening.cancel_scope.cancel()
        return making.cancelled_caught

    def _report(self, files: OutputFiles, manifest: Manifest, display: Display, *, interrupted: bool) -> int:
        """Write and show what a run comes to; the exit status."""
        summary = self._metrics.summary()
        msgspec.structs.replace(manifest, run=self._run_id, counts=summary.outcomes).save(files.manifest)
        write_whole(files.aggregate_metrics, self._metrics.aggregate())
        if files.materialized_inputs.exists():  # a run that is interrupted before its first row has none
            write_whole(files.reward_profiling, reward_profiles(files.materialized_inputs, self._metrics))
        display.final_table(
            summary,
            run=self._run_id,
            files=files,
            parts=result.parts(self._metrics),
            cost=self._budget.cost(self._metrics),
            as_json=self._options.json,
        )
        if self._tracking is not None:
            self._tracking.close(summary, failed=interrupted)
        if self._over_budget:
            display.note(f"{self._over_budget}; with a larger one, {MORE}")
            return 1
        if interrupted:
            display.note(RESUME)
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
    ) -> None:
        left = manifest.rollouts - len(progress)
        with (
            InputWriter(files.materialized_inputs, resume=progress.previous is not None) as inputs,
            ResultWriter(files) as writer,
        ):
            in_flight = self._concurrency * 2 + 64
            async with connect(url, prefix=self._options.broker.prefix) as client:
                remains = await self._take_up(client, files, manifest, progress, display)
                info = run_info(
                    dataset,
                    self._settings,
                    self._run_id,
                    left,
                    f"{self._model.provider}/{self._model.name}",
                )
                missing = self._missing(dataset, progress, inputs, remains)
                async with (
                    # A system that others share is pushed by 'gym-runtime metrics', or it would count twice.
                    nullcontext() if self._options.broker.urls else pushing(client.bus),
                    anyio.create_task_group() as group,
                    aclosing(
                        client.make(
                            missing, info, in_flight=in_flight, remains=remains, settled=progress.settled
                        )
                    ) as records,
                ):
                    group.start_soon(_flush, inputs, writer)
                    if not self._options.keep_going:
                        group.start_soon(self._watch_engine, client)
                    async for record in records:
                        writer.write(record)
                        self._metrics.add(record)
                        display.add(record)
                        if self._tracking is not None:
                            self._tracking.add(record)
                        if display.tally.added == 1:
                            writer.flush()
                        if display.tally.done < display.tally.total:
                            self._over_budget = self._budget.reached(self._metrics)
                            if self._over_budget and self._making is not None:
                                self._making.cancel()
                                break
                    group.cancel_scope.cancel()

    async def _take_up(
        self, client: Client, files: OutputFiles, manifest: Manifest, progress: Progress, display: Display
    ) -> Remains | None:
        """What the interrupted run has left on the broker; if nothing, this part is a run of its own."""
        if progress.previous is None:
            return None
        remains = await client.take_up(self._run_id, progress)
        if remains is None:
            if not progress.previous.counts:
                display.note(NOTHING_LEFT)
            self._run_id = new_run_id()
            msgspec.structs.replace(manifest, run=self._run_id).save(files.manifest)
        return remains

    def _missing(
        self, dataset: Dataset, progress: Progress, inputs: InputWriter, remains: Remains | None
    ) -> Iterator[RolloutSpec]:
        """The rollouts that are left to be made; all of them, made or not, go to the inputs."""
        for spec in self._specs(dataset):
            inputs.add(spec)
            for left in progress.remaining([spec]):
                if remains is None:
                    yield left
                elif not remains.has_result(left.task_index, left.rollout_index):
                    yield remains.resumed(left)

    async def _watch_interrupts(
        self, signals: AsyncIterator[signal.Signals], making: anyio.CancelScope
    ) -> None:
        async for _ in signals:
            if making.cancel_called:
                if self._system is not None:
                    self._system.kill()
                print(RESUME, file=sys.stderr, flush=True)
                os._exit(INTERRUPTED)
            making.cancel()

    async def _watch_engine(self, client: Client) -> None:
        """Stop a run early if its engine returns only errors."""
        while True:
            await anyio.sleep(ENGINE_LOOK_S)
            said = await client.dead_engine(self._settings.model_pool)
            if said:
                name = f"{self._model.provider}/{self._model.name}"
                raise UsageError(
                    f"the engine of {name} has returned only errors: {said}. Repair it and use "
                    "--resume, or continue all the same with --keep-going"
                )

    async def _watch_system(self, system: System, display: Display) -> None:
        async for event in system.events():
            if event.event == "restarted":
                display.note(f"{event.reason}; it is started again, and what it had goes on")
        raise UsageError("the workers are gone; what is written is complete, go on with --resume")


def _declared(environments: Iterable[str]) -> set[str]:
    """The roles that some environments have."""
    return {
        role.name for name in environments for role in catalogue.environment(name).definition.declared_roles
    }


def _how_to_name(role: str) -> str:
    option = "--judge " if role == "judge" else f"--role {role}="
    return f"{option}PROVIDER/NAME, or {option}policy to have the model answer for itself"


async def _flush(inputs: InputWriter, writer: ResultWriter) -> None:
    while True:
        await anyio.sleep(FLUSH_S)
        inputs.flush()
        writer.flush()
