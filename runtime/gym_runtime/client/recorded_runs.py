"""Runs of whole datasets: recorded in files and resumed, or published for another client to collect."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from gym_runtime.client.new_runs import POLICY, NewRuns, served_model
from gym_runtime.client.recovery import Remains
from gym_runtime.client.role_checks import with_served_roles
from gym_runtime.client.row_sources import AnyRow, line
from gym_runtime.client.run_driver import IN_FLIGHT, Keep
from gym_runtime.client.streaming import background
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.files.dataset import Dataset, Source, open_dataset
from gym_runtime.files.recorded_run import RecordedRun, RunPlan
from gym_runtime.files.results import InputWriter, OutputFiles, ResultWriter, load_manifest
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.stored_records import RunInfo, new_run_id
from gym_runtime.timing import FLUSH_S

FILES_CLOSE_S = 15.0
"""How long a recorded run that is left early may take to stop its work and close its files."""

NOTHING_LEFT = (
    "the interrupted run left nothing on this broker: what was in progress is made from the start (a broker "
    "that stays, --nats or --state-dir, keeps it)"
)
Expecting = Callable[[Iterable[RolloutSpec]], Iterable[RolloutSpec]]


class RecordedRuns(NewRuns):
    """Makes the rollouts of datasets."""

    async def publish(
        self,
        rows: Iterable[AnyRow] | Dataset,
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        **keywords: Any,
    ) -> RunInfo:
        """Put the rollouts of all rows onto the queues of a system, and return what is known of the run.

        The rollouts are made whether or not a client is there; `collect` of the run's id fetches them. A
        name that no worker serves now is no error: workers may be started later.

        Args:
            rows: dataset rows, as `rollouts` takes them. All are checked before the first is published.
            settings, environment, keywords: as of `rollouts`.

        Raises:
            UsageError: a row, a name or a value is wrong; nothing was published.
        """
        async with self._dataset(rows, environment) as dataset:
            plan = RunPlan(dataset, self._settings(settings, keywords))
            plan.require_groups()
            served = served_model(await self.workers(), plan.settings.model_pool)
            model = f"{served.provider}/{served.name}" if served else ""
            info = plan.info(new_run_id(), plan.rollouts, model)
            await self.driver.open_run(info)
            await self.driver.publish(plan.specs(info.run, attached=False))
            if (now := await self.driver.known(info)).closed:
                # It was cancelled meanwhile, and what was published since then waits for nothing.
                await self.driver.close_run(now, state=now.state)
        return info

    async def recorded(
        self,
        recorded: RecordedRun,
        *,
        in_flight: int = IN_FLIGHT,
        note: Callable[[str], None] | None = None,
        expecting: Expecting | None = None,
    ) -> AsyncGenerator[RolloutRecord]:
        """Make the rollouts that a recorded run still lacks; yields each one.

        Its row is in the file within moments. What an earlier part of the run that died has left on the
        broker is used. Leaving early cancels what is left, and the run can be resumed.

        Args:
            in_flight: rollouts published and not yet yielded, at most.
            note: is told what the user should know.
            expecting: sees the rollouts that will be yielded, in the order of the rows.

        Raises:
            UsageError: another process makes this run, the rows' file has changed, or the disk is full.
        """
        progress = recorded.progress
        remains = None
        if progress.previous is not None:
            remains = await self.driver.take_up(recorded.run, progress)
            if remains is None:
                if note is not None and not progress.previous.counts:
                    note(NOTHING_LEFT)
                recorded.rename(new_run_id())
        inputs = InputWriter(recorded.files.materialized_inputs, resume=progress.previous is not None)
        closed = anyio.Event()
        made = self.driver.make(
            _missing(recorded, inputs, remains, expecting),
            recorded.plan.info(recorded.run, recorded.missing, recorded.model),
            in_flight=in_flight,
            remains=remains,
            settled=progress.settled,
            keeping=_writing(recorded, inputs, closed),
        )
        try:
            async with aclosing(made) as records:
                async for record in records:
                    yield record
        finally:
            # The files are the work's, which has not ended yet if this generator is left early.
            with anyio.move_on_after(FILES_CLOSE_S, shield=True):
                await closed.wait()

    async def _planned(
        self, dataset: Dataset, settings: RolloutSettings
    ) -> tuple[Iterable[RolloutSpec], RunInfo]:
        """The rollouts of a new run that is not recorded, and what others are told of it."""
        plan = RunPlan(dataset, settings)
        plan.require_groups()
        named = self._run_info(settings, environments=[])
        specs = await with_served_roles(self.workers, plan.specs(named.run, attached=True))
        return specs, plan.info(named.run, plan.rollouts, named.model)

    @asynccontextmanager
    async def _recording(
        self,
        rows: Iterable[AnyRow] | Dataset,
        settings: RolloutSettings,
        environment: str | None,
        output: str | Path,
        *,
        resume: bool,
        retry_failed: bool,
    ) -> AsyncGenerator[RecordedRun]:
        """A recorded run of these rows; when the context ends its summary is written."""
        files = OutputFiles.beside(output)
        async with self._dataset(rows, environment) as dataset:
            plan = RunPlan(dataset, settings)
            plan.require_groups()
            await with_served_roles(self.workers, plan.one_of_each())
            info = self._run_info(settings, environments=[])
            served = self.served if settings.model_pool == POLICY else None
            with files.lock():
                previous = load_manifest(files.manifest) if resume else None
                # Opening reads what an earlier part of the run has written, which may be gigabytes.
                recorded = await to_thread.run_sync(
                    lambda: RecordedRun(
                        plan,
                        output,
                        run=previous.run if previous else info.run,
                        model=info.model,
                        settings={"model_options": served.options} if served else None,
                        resume=resume,
                        retry_failed=retry_failed,
                    )
                )
                try:
                    yield recorded
                finally:
                    # Also after Ctrl-C: the summary must fit the rows that were written.
                    with anyio.CancelScope(shield=True):
                        await to_thread.run_sync(recorded.summarize)

    @asynccontextmanager
    async def _dataset(
        self, rows: Iterable[AnyRow] | Dataset, environment: str | None
    ) -> AsyncGenerator[Dataset]:
        if isinstance(rows, Dataset):
            yield rows
            return
        declared = await self._declared(environment)
        # In a thread: the rows may come from a slow generator of the caller.
        with await to_thread.run_sync(_spooled, rows, environment, declared) as dataset:
            yield dataset


def _spooled(
    rows: Iterable[AnyRow], environment: str | None, declared: Mapping[str, LoadedEnvironment]
) -> Dataset:
    """Rows as a dataset, through a temporary file that ends with this call; the dataset keeps it open."""
    with tempfile.NamedTemporaryFile(prefix="gym-runtime-", suffix=".jsonl") as file:
        for row in rows:
            # A row may be JSON text over several lines; within its strings line breaks are escaped.
            file.write(line(row).replace(b"\n", b" ") + b"\n")
        file.flush()
        return open_dataset(Source(file.name, environment, "rows"), declared=declared)


def _missing(
    recorded: RecordedRun, inputs: InputWriter, remains: Remains | None, expecting: Expecting | None
) -> Iterator[RolloutSpec]:
    """The rollouts that are left to be made; all of them, made or not, go to the inputs."""

    def left() -> Iterator[RolloutSpec]:
        for spec in recorded.plan.specs(recorded.run, attached=True):
            inputs.add(spec)
            yield from recorded.progress.remaining([spec])

    for spec in expecting(left()) if expecting else left():
        if remains is None:
            yield spec
        elif not remains.has_result(spec.task_index, spec.rollout_index):
            yield remains.resumed(spec)


@asynccontextmanager
async def _writing(recorded: RecordedRun, inputs: InputWriter, closed: anyio.Event) -> AsyncGenerator[Keep]:
    """Writes records; closes the files when the context ends, and says so."""
    with ExitStack() as stack:
        # First in, last out: when it is called the files are closed.
        stack.callback(closed.set)
        stack.enter_context(inputs)
        writer = stack.enter_context(ResultWriter(recorded.files))

        def flush() -> None:
            inputs.flush()
            writer.flush()

        async def keep_flushing() -> None:
            while True:
                await anyio.sleep(FLUSH_S)
                flush()

        first = True

        def keep(record: RolloutRecord) -> None:
            nonlocal first
            writer.write(record)
            recorded.metrics.add(record)
            # The first row is written at once: a user looks at the file to see whether the run works.
            if first:
                writer.flush()
                first = False

        async with background() as tasks:
            tasks.start_soon(keep_flushing)
            yield keep
