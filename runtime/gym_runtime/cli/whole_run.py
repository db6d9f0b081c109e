"""One ``gym-runtime run``: rows in, rollouts run, files out.

It streams: the rows are checked to the end first, then expanded, published and collected side by
side, with no more rollouts on the way than the workers can use. Collected results are on disk within
moments; an interruption at any time leaves whole lines, and ``--resume`` runs the missing rollouts.

It stops early at a signal, when a budget is used up, when the engine answers only errors, or when the broker
stores nothing. Ctrl-C stops the run and keeps what is written; a second one ends everything at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from gym_runtime import logs, tracing
from gym_runtime.cli import formatting, result, terminal
from gym_runtime.cli.config import load_config
from gym_runtime.cli.display import Display
from gym_runtime.cli.dry_run import estimate
from gym_runtime.cli.dry_run import show as show_estimate
from gym_runtime.cli.interruption import INTERRUPTED, MORE, RESUME, held_back, terminable
from gym_runtime.cli.models import RunModels
from gym_runtime.cli.options import shown_name
from gym_runtime.cli.remote import run_async
from gym_runtime.cli.rows import opened, sources
from gym_runtime.client import About, Client, Tracker, connect, differing
from gym_runtime.client.reward_watch import Watch, load_watch
from gym_runtime.client.status import dead_engine, in_progress
from gym_runtime.client.tracking import load_tracker, tell_alarms
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.settings import require_known
from gym_runtime.errors import GymError, UsageError
from gym_runtime.files.appender import write_whole
from gym_runtime.files.dataset import Dataset, Source
from gym_runtime.files.recorded_run import RecordedRun, RunPlan
from gym_runtime.files.results import OutputFiles, load_manifest
from gym_runtime.messages.alarms import Alarm
from gym_runtime.messages.stored_records import new_run_id
from gym_runtime.plugins import load_plugin
from gym_runtime.system.hosting import host
from gym_runtime.system.spec import Event, SystemSpec
from gym_runtime.system.starting import received
from gym_runtime.system.system import System, launch
from gym_runtime.timing import PATIENCE_S

if TYPE_CHECKING:
    from gym_runtime.cli.run import RunOptions

COMPLETE = "the run is complete: no rollouts are left; --extend makes it larger"
ENGINE_LOOK_S = 2.0
"""How often `run` asks whether the engine returns only errors, and what is in progress."""
CODE_LOOK_S = 15.0
"""How often `run` asks whether workers that join a shared system have other code of its environments."""
LONG_BYTES = 50 * 10**6
"""Rollouts of this size take two seconds to be read; `run` prints that it reads."""
START_NOTE_S = 2.0
"""After how long `run` prints that it is still starting."""


class WholeRun:
    """Made of the options; `run` it once.

    Args:
        made: the rows, where the command makes them itself; its file is written once the run begins.
    """

    _recorded: RecordedRun
    _display: Display
    _making: anyio.CancelScope
    _ring: Callable[[Alarm], None]

    def __init__(self, names: Sequence[str], options: RunOptions, made: Source | None = None) -> None:
        self._names, self._options, self._made = names, options, made
        self._config = load_config(options.config)
        self._broker = self._config.broker(options.broker)
        self._run_id = new_run_id()
        self._models = RunModels(options, names, self._config.models, self._broker, self._run_id)
        self._row_fields = options.rows.settings()
        self._system: System | None = None
        self._tracking: Tracker | None = None
        self._weak_sandbox = False
        self._over_budget, self._alarm = "", False
        self._watching: AbstractAsyncContextManager[Watch] | None = None

    def run(self) -> int:
        """Run it to its end; returns the exit status."""
        logs.export("gym-runtime")
        tracing.start("gym-runtime")
        try:
            return self._run()
        finally:
            tracing.stop()
            logs.stop_export()

    def _run(self) -> int:
        options = self._options
        if options.extend and not options.resume:
            raise UsageError("--extend is for a run that exists: --resume --extend")
        if options.retry_failed and not options.resume:
            raise UsageError("--retry-failed is for a run that exists: --resume --retry-failed")
        if options.overwrite and options.resume:
            raise UsageError("--overwrite begins a new run, --resume continues one: leave one of them out")
        if options.dry_run and options.resume:
            raise UsageError("--dry-run is of a new run: leave --resume out")
        environments = catalogue.environments(self._names)
        self._weak_sandbox = requirements.weak_sandbox(allowed=options.allow_weak_sandbox)
        for environment in environments:
            requirements.require(environment)
        if options.input is None:
            require_known(self._row_fields, environments)
        files = OutputFiles.beside(options.output_path(self._names))
        made = self._made
        found = [made] if made else sources(self._names, options.input, options.rows.limit)
        files.refuse_inputs(*(source.path for source in found if source.path != "-"))
        for source in found:
            source.require()
        if options.dry_run:
            return self._dry_run(files, found)
        with files.lock():
            previous = load_manifest(files.manifest) if options.resume else None
            if previous is not None:
                self._run_id = previous.run
                self._models.resume(previous.run)
                size_bytes = files.rollouts.stat().st_size if files.rollouts.exists() else 0
                if size_bytes >= LONG_BYTES:
                    terminal.note(f"reading {files.rollouts}, {size_bytes // 10**6:,} MB …")
            self._models.choose_policy()
            earlier = previous.rows if previous else None
            try:
                with opened(found, options.rows, adopt=True, earlier_rows=earlier) as dataset:
                    return self._start(dataset)
            except BaseException:
                if self._system is not None:
                    self._system.kill()
                if self._tracking is not None:
                    self._tracking.close(failed=True)
                raise

    def _dry_run(self, files: OutputFiles, found: Sequence[Source]) -> int:
        options, models = self._options, self._models
        models.choose_policy()
        with opened(found, options.rows, adopt=True) as dataset:
            plan = self._plan(dataset)
            roles = {role: models.role_model(role) for role in sorted(plan.settings.roles)}
            about = estimate(plan, files, options.budget, model=models.name, roles=roles)
        show_estimate(about, as_json=options.json)
        return 0

    def _plan(self, dataset: Dataset) -> RunPlan:
        self._models.choose_roles([catalogue.address(name) for name in sorted(dataset.environments)])
        plan = RunPlan(dataset, self._models.settings)
        plan.require_runnable()
        return plan

    def _start(self, dataset: Dataset) -> int:
        plan = self._plan(dataset)
        recorded = self._recorded = self._record(plan)
        label = ", ".join(map(shown_name, self._names))
        display = self._display = Display(recorded.manifest.rollouts, recorded.metrics, label=label)
        for notice in recorded.progress.notices:
            display.note(notice)
        if recorded.missing <= 0:
            display.note(COMPLETE)
            return self._report(interrupted=False)
        self._over_budget = self._options.budget.reached(recorded.metrics)
        if self._over_budget:
            return self._report(interrupted=True)
        try:
            self._track()
            self._watch_rewards()
            system = self._launch(dataset)
            with held_back() as noted:
                interrupted = run_async(self._make, system, noted)
        except BaseException:
            recorded.withdraw()
            raise
        self._begin()
        with terminable():  # the event loop has put SIGTERM back to its default
            return self._report(interrupted=interrupted)

    def _track(self) -> None:
        """Begin the run in the tracker that was asked for."""
        name = self._options.track
        if name is None:
            return
        recorded, metrics = self._recorded, self._recorded.metrics
        rollouts = recorded.files.rollouts
        about = About(
            run=recorded.run,
            # A folder of its own for each run, or --overwrite would draw the old curves into the new ones.
            folder=rollouts.with_name(f"{rollouts.stem}_tensorboard") / recorded.run,
            settings={key: value for key, value in recorded.manifest.settings.items() if value is not None},
        )
        before = metrics.summary() if metrics.rollouts else None
        repeats = min(recorded.plan.repeats.values())
        tracking = load_tracker(name)(about, self._display.note, repeats=repeats, before=before)
        tracking.open()
        self._tracking = tracking

    def _watch_rewards(self) -> None:
        """Prepare the second look at rewards that was asked for."""
        asked, recorded = self._options.watch, self._recorded
        if asked.watch_rewards is None:
            return

        def tell(what: Alarm | str) -> None:
            self._display.note(str(what))
            if isinstance(what, Alarm):
                self._ring(what)
                if asked.stop_on_alarm:
                    self._alarm = True
                    self._making.cancel()

        addresses = {name: catalogue.address(name) for name in sorted(recorded.plan.dataset.environments)}
        path = recorded.files.alarms
        self._watching = load_watch()(
            addresses, asked.watch_rewards, asked.second_look, path, tell, self._models.auditor
        )

    def _launch(self, dataset: Dataset) -> System:
        """Start the workers that the rows need."""
        options, environments = self._options, sorted(dataset.environments)
        pools = self._models.pools(map(catalogue.address, environments), options.workers, dataset.harnesses)
        self._system = launch(
            SystemSpec(
                pools=host(pools) if options.hosted else pools,
                nats=self._broker.urls,
                prefix=self._broker.prefix,
                state_dir=options.state_dir or self._config.state_dir,
                # The broker was there for the run's earlier part: a silent one is restarting, or cut off.
                wait_s=PATIENCE_S if options.resume and self._broker.urls else 0.0,
                log_lines=True,
                weak_sandbox=self._weak_sandbox,
            )
        )
        return self._system

    def _record(self, plan: RunPlan) -> RecordedRun:
        options, settings = self._options, plan.settings
        return RecordedRun(
            plan,
            options.output_path(self._names),
            run=self._run_id,
            model=self._models.name,
            settings={
                "model_options": self._models.policy.options,
                "roles": {role: self._models.role_model(role) for role in sorted(settings.roles)} or None,
                "limit": options.rows.limit,
                "shuffle_seed": options.rows.shuffle_seed,
                "settings": self._row_fields or None,
                "prompt": options.rows.prompt or None,
            },
            notes={
                "input": formatting.path(options.input or ""),
                "model_urls": list(self._models.policy.urls),
            },
            resume=options.resume,
            extend=options.extend,
            retry_failed=options.retry_failed,
            overwrite=options.overwrite,
            failures_as_zero=options.failures_as_zero,
            images=options.images,
        )

    def _begin(self) -> None:
        """The run has started: files that it replaces may go."""
        self._recorded.begin()
        if self._made is not None and self._made.content is not None:
            write_whole(Path(self._made.path), iter([self._made.content]))

    async def _make(self, system: System, noted: Sequence[int]) -> bool:
        """Make the rollouts and stop the system; whether a signal ended it.

        Args:
            noted: signals that came before this could handle them.
        """
        self._making = anyio.CancelScope()
        with received(signal.SIGINT, signal.SIGTERM) as signals:
            async with anyio.create_task_group() as listening:
                listening.start_soon(self._watch_interrupts, system, signals)
                if noted:
                    self._making.cancel()
                with self._making:
                    async with anyio.create_task_group() as group:
                        await self._ready(system)
                        self._begin()
                        group.start_soon(self._watch_system, system)
                        with self._display:
                            await self._collect(system)
                        group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await system.stop(drain=not self._making.cancelled_caught)
                listening.cancel_scope.cancel()
        return self._making.cancelled_caught

    async def _ready(self, system: System) -> None:
        """Wait until the workers are up; say so when that takes a while."""

        async def explain() -> None:
            await anyio.sleep(START_NOTE_S)
            self._display.note("starting the workers …")

        def note_waiting(event: Event) -> None:
            if event.event == "waiting":
                self._display.note(f"waiting up to {PATIENCE_S:.0f} s: {event.reason}")

        async with anyio.create_task_group() as group:
            group.start_soon(explain)
            await system.until("all_ready", note_waiting)
            group.cancel_scope.cancel()

    async def _collect(self, system: System) -> None:
        display, metrics, tracking = self._display, self._recorded.metrics, self._tracking
        in_flight = self._models.concurrency * 2 + 64
        async with (
            connect(system.url, prefix=self._broker.prefix) as client,
            # A system that others share is pushed by 'gym-runtime metrics', or it would count twice.
            nullcontext() if self._broker.urls else load_plugin("metrics", "pushing")(client.driver.bus),
            self._watching or nullcontext() as client.driver.alarms.watch,
            anyio.create_task_group() as group,
            aclosing(client.recorded(self._recorded, in_flight=in_flight, note=display.note)) as records,
        ):
            self._ring = client.driver.alarms.ring
            if tracking is not None:
                tell_alarms(tracking, client.driver.alarms)
            if not self._options.keep_going:
                group.start_soon(self._watch_engine, client)
            if self._broker.urls:
                if not await self._code_differs(client):
                    group.start_soon(self._watch_code, client)
            else:  # workers of a system that others share are busy with theirs, too
                group.start_soon(self._watch_progress, client)
            async for record in records:
                display.add(record)
                if tracking is not None:
                    tracking.add(record)
                if metrics.rollouts < display.tally.total:
                    self._over_budget = self._options.budget.reached(metrics)
                    if self._over_budget:
                        self._making.cancel()
                        break
            # Where an engine refuses everything, a small run is over before anyone has looked.
            if not self._options.keep_going and metrics.failures.total() == metrics.rollouts:
                await self._require_engine(client)
            group.cancel_scope.cancel()

    async def _watch_interrupts(self, system: System, signals: AsyncIterator[signal.Signals]) -> None:
        async for _ in signals:
            if self._making.cancel_called:
                system.kill()
                print(RESUME, file=sys.stderr, flush=True)
                os._exit(INTERRUPTED)
            self._making.cancel()

    async def _watch_progress(self, client: Client) -> None:
        """Show what is going on while no rollout is finished."""
        while True:
            await anyio.sleep(ENGINE_LOOK_S)
            with suppress(GymError):  # the broker is away: it comes back, or the run ends
                pool = self._models.settings.model_pool
                self._display.look(await in_progress(client.driver.bus, client.workers, pool))

    async def _code_differs(self, client: Client) -> bool:
        """Whether workers of others judge this run's rollouts with other code; then it is said."""
        lines: list[str] = []
        with suppress(GymError):  # the broker is away: it comes back, or the run ends
            lines = differing(await client.workers(), self._recorded.plan.dataset.environments)
        for line in lines:
            self._display.note(line)
        return bool(lines)

    async def _watch_code(self, client: Client) -> None:
        differs = False
        while not differs:
            await anyio.sleep(CODE_LOOK_S)
            differs = await self._code_differs(client)

    async def _watch_engine(self, client: Client) -> None:
        """Stop a run early if its engine returns only errors."""
        while True:
            await anyio.sleep(ENGINE_LOOK_S)
            await self._require_engine(client)

    async def _require_engine(self, client: Client) -> None:
        said = await dead_engine(client.driver.bus, client.workers, self._models.settings.model_pool)
        if said:
            raise UsageError(
                f"the engine of {self._models.name} has returned only errors: {said}. Repair it and use "
                "--resume --retry-failed, or go on regardless with --keep-going"
            )

    async def _watch_system(self, system: System) -> None:
        async for event in system.events():
            if event.event == "restarted":
                self._display.note(
                    f"{event.reason}; it is started again, and other workers continue its rollouts"
                )
        raise UsageError("the workers have ended; every written row is complete, so continue with --resume")

    def _report(self, *, interrupted: bool) -> int:
        """Write and show the results of a run; returns the exit status."""
        recorded, display, metrics = self._recorded, self._display, self._recorded.metrics
        summary = recorded.summarize()
        result.report(
            summary,
            run=recorded.run,
            files=recorded.files,
            tally=display.tally,
            wall_s=display.wall_s,
            cost=self._options.budget.cost(metrics),
            as_json=self._options.json,
        )
        if self._tracking is not None:
            self._tracking.close(summary, failed=interrupted)
        if recorded.manifest.cancelled_by:
            who = formatting.cancelled(recorded.manifest.cancelled_by, recorded.manifest.cancelled_s)
            display.note(f"run {recorded.run} was {who}")
        if self._over_budget:
            display.note(f"{self._over_budget}; with a larger budget, {MORE}")
            return 1
        if self._alarm and interrupted:
            rest = f"; to go on, {MORE}" if metrics.rollouts < display.tally.total else ""
            display.note(f"stopped by an alarm (--stop-on-alarm){rest}")
            return 1
        if interrupted:
            display.note(RESUME)
            return INTERRUPTED
        return result.status(summary, fail_on_failures=self._options.fail_on_failures)
