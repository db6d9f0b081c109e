"""``run``: rows in, rollouts made, files out.

It streams: the rows are checked to the end first, then expanded, published and collected side by
side, with no more rollouts on the way than the workers can use. Collected results are on disk within
moments; an interruption at any time leaves whole lines, and ``--resume`` runs the missing rollouts.

Ctrl-C stops the run and keeps what there is; a second one ends everything at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from gym_runtime import logs, tracing
from gym_runtime.cli import result, terminal
from gym_runtime.cli.budget import BUDGET, Budget
from gym_runtime.cli.config import load_config
from gym_runtime.cli.display import Display
from gym_runtime.cli.interruption import INTERRUPTED, MORE, RESUME, held_back, terminable
from gym_runtime.cli.loop import run_async
from gym_runtime.cli.models import DEFAULT_CONCURRENCY
from gym_runtime.cli.options import (
    AT_LEAST_ONE,
    BROKER,
    FLAT,
    MODEL,
    ROLES,
    ROLLOUTS,
    ROWS,
    SYSTEM,
    Apart,
    AsJson,
    Broker,
    FailuresAsZero,
    Input,
    Model,
    Output,
    Roles,
    RolloutsAsked,
    Rows,
    StateDir,
    WeakSandbox,
    parse_row_fields,
    shown_name,
)
from gym_runtime.cli.rows import sources
from gym_runtime.cli.run_models import RunModels
from gym_runtime.cli.run_part import RunPart
from gym_runtime.client import About, Tracker
from gym_runtime.client.tracking import load_tracker
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.settings import require_known
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Dataset, open_dataset
from gym_runtime.files.recorded_run import RecordedRun, RunPlan
from gym_runtime.files.results import OutputFiles, load_manifest
from gym_runtime.messages.stored_records import new_run_id
from gym_runtime.system.hosting import host
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, launch
from gym_runtime.timing import PATIENCE_S

COMPLETE = "the run is complete: nothing is left to make; --extend makes it larger"
RESULTS = Path("results")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of ``run``.

    Attributes:
        input: Dataset rows, JSONL, or - for standard input; by default the environments' example rows. With
            several environments, each row names its own in agent_ref.
        output: The rollouts; further files are put beside it. By default results/NAME.jsonl.
        resume: Continue an interrupted run.
        extend: With --resume: more --repeats, a higher --limit, or rows added at the end of the input.
            Finished rollouts are kept.
        retry_failed: With --resume: run all failed rollouts again, including those that failed for good.
        overwrite: Replace the files of an earlier run.
        keep_going: Do not stop when the engine returns only errors.
        track: An experiment tracker, which gets aggregates and a few rollouts as examples every few seconds
            and at the end. TensorBoard's files are put beside the output, as NAME_tensorboard; other trackers
            are configured by their own variables, such as WANDB_MODE and MLFLOW_TRACKING_URI.
        concurrency: Rollouts in flight, over all agent workers.
        workers: Processes of each kind.
        apart: Give every worker a process of its own; by default agent workers host the environments and
            models that may share their process.
        config: Take the broker and the model from a system's file ('gym-runtime start --help'). Options
            given here win.
    """

    input: Input = None
    output: Output = None
    resume: bool = False
    extend: bool = False
    retry_failed: bool = False
    overwrite: bool = False
    keep_going: bool = False
    track: Literal["wandb", "mlflow", "tensorboard", "trackio"] | None = None
    json: AsJson = False
    failures_as_zero: FailuresAsZero = False
    rows: Rows = ROWS
    rollouts: RolloutsAsked = ROLLOUTS
    budget: Budget = BUDGET
    model: Model = MODEL
    roles: Roles = ROLES
    broker: Broker = BROKER
    concurrency: Annotated[int, SYSTEM, AT_LEAST_ONE] = DEFAULT_CONCURRENCY
    workers: Annotated[int, SYSTEM, AT_LEAST_ONE] = 1
    apart: Apart = False
    state_dir: StateDir = ""
    allow_weak_sandbox: WeakSandbox = False
    config: Annotated[Path | None, SYSTEM] = None

    def output_path(self, names: Sequence[str]) -> Path:
        """Where the rollouts go: as said, else ``results/`` and the environments' or the input's name."""
        if self.output is not None:
            return self.output
        stem = "-".join(map(shown_name, names)) or (self.input.stem if self.input else "run")
        return RESULTS / f"{stem}.jsonl"


RUN = RunOptions()


def run(*names: str, options: Annotated[RunOptions, FLAT] = RUN) -> int:
    """Make rollouts in one or several environments: everything in one command.

    Starts a broker and workers, publishes the rows, collects the verified rollouts, and reports.

    Args:
        names: Environments, or paths of modules.
    """
    terminal.note_untested_python()
    logs.export("gym-runtime")
    tracing.start("gym-runtime")
    try:
        return _Run(names, options).run()
    finally:
        tracing.stop()
        logs.stop_export()


class _Run:
    """One ``gym-runtime run``."""

    def __init__(self, names: Sequence[str], options: RunOptions) -> None:
        self._names, self._options = names, options
        self._config = load_config(options.config)
        self._broker = self._config.broker(options.broker)
        self._run_id = new_run_id()
        self._models = RunModels(
            options=options.model,
            roles=options.roles,
            file_models=self._config.models,
            broker=self._broker,
            run=self._run_id,
            names=names,
            settings=options.rollouts.chosen(),
            concurrency=options.concurrency,
        )
        self._row_fields = parse_row_fields(options.rows.row_fields)
        self._system: System | None = None
        self._tracking: Tracker | None = None
        self._weak_sandbox = False

    def run(self) -> int:
        options = self._options
        if options.extend and not options.resume:
            raise UsageError("--extend is for a run that exists: --resume --extend")
        if options.retry_failed and not options.resume:
            raise UsageError("--retry-failed is for a run that exists: --resume --retry-failed")
        if options.overwrite and options.resume:
            raise UsageError("--overwrite begins a new run, --resume continues one: leave one of them out")
        environments = [catalogue.environment(name) for name in self._names]
        self._weak_sandbox = requirements.weak_sandbox(allowed=options.allow_weak_sandbox)
        for environment in environments:
            requirements.require(environment)
        if options.input is None:
            require_known(self._row_fields, environments)
        files = OutputFiles.beside(options.output_path(self._names))
        found = sources(self._names, options.input, options.rows.limit)
        files.refuse_inputs(*(source.path for source in found if source.path != "-"))
        for source in found:
            source.require()
        with files.lock():
            previous = load_manifest(files.manifest) if options.resume else None
            if previous is not None:
                self._run_id = previous.run
                self._models.resume(previous.run)
            self._models.choose_policy()
            if options.input is None and not options.resume:
                self._models.choose_roles(self._names)
                self._launch(self._names)
            try:
                with open_dataset(
                    *found,
                    limit=options.rows.limit,
                    shuffle_seed=options.rows.shuffle_seed,
                    settings=self._row_fields,
                    earlier_rows=previous.rows if previous else None,
                ) as dataset:
                    return self._start(dataset)
            except BaseException:
                if self._system is not None:
                    self._system.kill()
                if self._tracking is not None:
                    self._tracking.close(failed=True)
                raise

    def _start(self, dataset: Dataset) -> int:
        if self._system is None:
            self._models.choose_roles([catalogue.address(name) for name in sorted(dataset.environments)])
        plan = RunPlan(dataset, self._models.settings)
        plan.require_groups()
        recorded = self._recorded(plan)
        display = Display(
            recorded.manifest.rollouts,
            label=", ".join(map(shown_name, self._names)),
            before=recorded.metrics.summary() if len(recorded.progress) else None,
        )
        for notice in recorded.progress.notices:
            display.note(notice)
        if recorded.missing <= 0:
            display.note(COMPLETE)
            return self._report(recorded, display, interrupted=False)
        over_budget = self._options.budget.reached(recorded.metrics)
        if over_budget:
            return self._report(recorded, display, interrupted=True, over_budget=over_budget)
        self._track(recorded, display)
        if self._system is None:
            self._launch(catalogue.address(name) for name in sorted(dataset.environments))
        assert self._system is not None
        part = RunPart(
            broker=self._broker,
            keep_going=self._options.keep_going,
            models=self._models,
            recorded=recorded,
            budget=self._options.budget,
            display=display,
            system=self._system,
            tracking=self._tracking,
        )
        with held_back() as noted:
            interrupted = run_async(part.make, noted)
        with terminable():  # the event loop has put SIGTERM back to its default
            return self._report(recorded, display, interrupted=interrupted, over_budget=part.over_budget)

    def _track(self, recorded: RecordedRun, display: Display) -> None:
        """Begin the run in the tracker that was asked for."""
        name = self._options.track
        if name is None:
            return
        rollouts, metrics = recorded.files.rollouts, recorded.metrics
        about = About(
            run=recorded.run,
            folder=rollouts.with_name(f"{rollouts.stem}_tensorboard"),
            settings={key: value for key, value in recorded.manifest.settings.items() if value is not None},
        )
        before = metrics.summary() if metrics.rollouts else None
        repeats = min(recorded.plan.repeats.values())
        tracking = load_tracker(name)(about, display.note, repeats=repeats, before=before)
        tracking.open()
        self._tracking = tracking

    def _launch(self, environments: Iterable[str]) -> None:
        """Start the workers; they come up while the rows are read."""
        options = self._options
        pools = self._models.pools(environments, options.workers)
        self._system = launch(
            SystemSpec(
                pools=pools if options.apart else host(pools),
                nats=self._broker.urls,
                prefix=self._broker.prefix,
                state_dir=options.state_dir or self._config.state_dir,
                # The broker was there for the run's earlier part: a silent one is restarting, or cut off.
                wait_s=PATIENCE_S if options.resume and self._broker.urls else 0.0,
                log_lines=True,
                weak_sandbox=self._weak_sandbox,
            )
        )

    def _recorded(self, plan: RunPlan) -> RecordedRun:
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
            },
            notes={"input": str(options.input or ""), "model_urls": list(self._models.policy.urls)},
            resume=options.resume,
            extend=options.extend,
            retry_failed=options.retry_failed,
            overwrite=options.overwrite,
            failures_as_zero=options.failures_as_zero,
        )

    def _report(
        self, recorded: RecordedRun, display: Display, *, interrupted: bool, over_budget: str = ""
    ) -> int:
        """Write and show the results of a run; returns the exit status."""
        metrics = recorded.metrics
        summary = recorded.summarize()
        result.report(
            summary,
            run=recorded.run,
            files=recorded.files,
            parts=result.parts(metrics),
            tally=display.tally,
            wall_s=display.wall_s,
            cost=self._options.budget.cost(metrics),
            as_json=self._options.json,
        )
        if self._tracking is not None:
            self._tracking.close(summary, failed=interrupted)
        if over_budget:
            display.note(f"{over_budget}; with a larger one, {MORE}")
            return 1
        if interrupted:
            display.note(RESUME)
            return INTERRUPTED
        return 0 if summary.mean_reward is not None else 1
