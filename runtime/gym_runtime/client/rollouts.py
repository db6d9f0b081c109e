"""Rows in, rollouts out: whole runs, groups, and one rollout at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from gym_view.trackers.tracker import TrackerName
from gym_view.trackers.tracking import Tracking, tracked

from gym_runtime.client.recorded_runs import Expecting, RecordedRuns
from gym_runtime.client.row_sources import AnyRow, InputOrder, RowSources, line
from gym_runtime.client.run_driver import IN_FLIGHT
from gym_runtime.client.standing_run import StandingRun, opened
from gym_runtime.client.streaming import ResultStream
from gym_runtime.client.tracking import About
from gym_runtime.client.window import Window
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Dataset
from gym_runtime.files.rows import Numbering, expand
from gym_runtime.logs import logger
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_info import RunInfo
from gym_runtime.rollout.comparisons import Comparisons
from gym_runtime.rollout.groups import Cancel, Group, GroupPolicy, Groups, Make


class _Begun(NamedTuple):
    made: AsyncGenerator[RolloutRecord]
    run: RunInfo


class Rollouts(RecordedRuns):
    """Has rollouts made."""

    def rollouts(
        self,
        rows: Iterable[AnyRow] | Dataset,
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        in_flight: int = IN_FLIGHT,
        ordered: bool = False,
        track: TrackerName | None = None,
        output: str | Path | None = None,
        resume: bool = False,
        retry_failed: bool = False,
        **keywords: Any,
    ) -> AsyncGenerator[RolloutRecord]:
        """Have rollouts made of dataset rows; yields each record once, in the order of completion.

        Leaving the loop early cancels what is left. Failed rollouts are yielded too: their ``reward`` is
        None and their ``outcome`` says why.

        Args:
            rows: dataset rows, as mappings or JSON text; or what `open_dataset` has opened. A list is
                checked whole before anything starts; any other iterable is read as places become free, so
                memory does not grow with it.
            settings: how rollouts are made.
            environment: for rows without an ``agent_ref``.
            in_flight: rollouts published and not yet yielded, at most.
            ordered: yield in the order of the rows instead; a record that overtook others waits in memory.
            track: an experiment tracker that is told of the run every few seconds and at its end: aggregates
                and a few examples. TensorBoard's files are put into ``runs/RUN``.
            output: write the rows to this file, with the files beside it that ``gym-runtime run -o`` writes;
                a row is there within moments. All rows are read before anything starts.
            resume: go on with the files of ``output``: what they have is not made, and not yielded. The rows
                and the settings must be the same; without files it is a new run.
            retry_failed: with ``resume``: make all failed rollouts again, those that failed for good too.
            keywords: fields of `RolloutSettings` to change in ``settings``, such as ``repeats``; others win
                over the rows: the fields of `Sampling`, such as ``temperature``, ``top_k`` or ``seed``, and
                those of ``responses_create_params``.

        Raises:
            TaskError, UsageError: a row, a name or a value is wrong, the model's engine does not have a
                sampling parameter, or no worker serves a role; of a list, nothing was started. Or the files
                of ``output`` are in use, or are not of this run.
        """
        _refuse_one_row(rows)
        if resume and output is None:
            raise UsageError("resume goes on with the files of an output: give output=FILE too")
        if retry_failed and not resume:
            raise UsageError("retry_failed is for a run that exists: give resume=True too")
        # Not a generator itself: the checks above are made at the call, not at the first record.
        begun = partial(self._begun, rows, settings, environment, in_flight, output, resume, retry_failed)
        return self._rollouts(
            partial(begun, keywords),
            ordered,
            track,
            (settings or RolloutSettings()).with_keywords(keywords),
        )

    async def _rollouts(
        self,
        begin: Callable[[Expecting | None], AbstractAsyncContextManager[_Begun]],
        ordered: bool,
        track: TrackerName | None,
        settings: RolloutSettings,
    ) -> AsyncGenerator[RolloutRecord]:
        order = InputOrder[RolloutRecord]()

        def expecting(specs: Iterable[RolloutSpec]) -> Iterable[RolloutSpec]:
            return order.expecting(specs, lambda spec: (spec.task_index, spec.rollout_index))

        async with begin(expecting if ordered else None) as begun:
            made = begun.made
            if track is not None:
                made = tracked(made, _tracking(track, begun.run, settings))
            # A generator that is dropped without `aclose` is closed some time later, in another task.
            async with aclosing(made) as records:
                async for record in records:
                    if not ordered:
                        yield record
                        continue
                    for due in order.arrived((record.task_index, record.rollout_index), record):
                        yield due
            for due in order.rest():
                yield due

    @asynccontextmanager
    async def _begun(
        self,
        rows: Iterable[AnyRow] | Dataset,
        settings: RolloutSettings | None,
        environment: str | None,
        in_flight: int,
        output: str | Path | None,
        resume: bool,
        retry_failed: bool,
        keywords: Mapping[str, Any],
        expecting: Expecting | None,
    ) -> AsyncGenerator[_Begun]:
        """What makes the records, while they are read."""
        if output is not None:
            chosen = self._settings(settings, keywords)
            recording = self._recording(
                rows, chosen, environment, output, resume=resume, retry_failed=retry_failed
            )
            async with recording as recorded:
                made = self.recorded(recorded, in_flight=in_flight, expecting=expecting)
                yield _Begun(made, recorded.plan.info(recorded.run, recorded.missing, recorded.model))
            return
        if isinstance(rows, Dataset):
            specs, run = await self._planned(rows, self._settings(settings, keywords))
        else:
            sources = RowSources(rows, remembered=False)
            specs, run = await self._specs(sources, settings, environment, keywords)
        specs = expecting(specs) if expecting else specs
        yield _Begun(self.driver.make(specs, run, in_flight=in_flight), run)

    async def groups(
        self,
        rows: Iterable[AnyRow],
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        on_failure: GroupPolicy = "replace",
        in_flight: int = IN_FLIGHT,
        ordered: bool = False,
        keys: Iterable[Any] | None = None,
        **keywords: Any,
    ) -> AsyncGenerator[Group]:
        """As `rollouts`, but each row's rollouts come together, as soon as all of them are settled.

        Rows of a list with the same text are one group, unless there are ``keys``.

        Args:
            on_failure: what becomes of a group in which a rollout fails for good; see
                `gym_runtime.rollout.groups`.
            in_flight: rollouts published and not yet settled, at most.
            ordered: yield in the order of the rows instead; a group that overtook others waits in memory.
            keys: your name for each row, of any type: each row is a group of its own, whatever its text, and
                its `Group.key` is this name.

        Raises:
            TaskError, UsageError: as `rollouts`; of a list, nothing was started.
        """
        _refuse_one_row(rows)
        sources = RowSources(rows, keys, remembered=True)
        specs, run = await self._specs(sources, settings, environment, keywords)
        groups, comparisons = Groups(on_failure), Comparisons()
        specs = groups.noting(specs)
        order = InputOrder[Group]()
        if ordered:
            specs = order.expecting(specs, lambda spec: spec.task_index)
        stream = ResultStream[Group]()
        window = Window(in_flight)

        async def take(record: RolloutRecord) -> None:
            commands = groups.take(record)
            # A replacement takes the place of the failed rollout; a released one would go to another row.
            if not any(isinstance(command, Make) for command in commands):
                window.release(record)
            for command in commands:
                match command:
                    case Make(task):
                        # Before it is published, and so before its record can come.
                        comparisons.expect(task)
                        # Without the window: its place was not released (above).
                        await self.driver.publish([task])
                    case Cancel(task_index):
                        await self.driver.cancel(record.run, task_index)
                    case Group():
                        row, key = sources.take(command.task_index)
                        group = msgspec.structs.replace(command, row=row, key=key)
                        for due in order.arrived(group.task_index, group) if ordered else (group,):
                            await stream.send(due)

        async def work() -> None:
            await self.driver.drive(
                specs, run, window, take, comparisons=comparisons, more=lambda: groups.replacements
            )
            for due in order.rest():
                await stream.send(due)

        async with aclosing(self.driver.yielded(work, stream)) as complete:
            async for group in complete:
                yield group

    @asynccontextmanager
    async def standing_run(
        self,
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        **keywords: Any,
    ) -> AsyncGenerator[StandingRun]:
        """A run that takes rows one by one, for as long as the context lasts; see `StandingRun.rollout`.

        What is in progress at its end is cancelled.

        Args:
            environment: for rows without an ``agent_ref``.
            keywords: as in `rollouts`, except ``repeats``.

        Raises:
            UsageError: a name or a value is wrong.
        """
        chosen = self._settings(settings, keywords)
        if chosen.repeats not in (None, 1):
            raise UsageError(f"repeats is {chosen.repeats}; a standing run makes one rollout for each row")
        chosen = replace(chosen, repeats=1)
        declared = await self._declared(environment)
        numbering = Numbering(apart=True)
        info = self._run_info(chosen, environments=[environment] if environment else [])

        def made(row: AnyRow, sampling: Mapping[str, Any]) -> Iterator[RolloutSpec]:
            return expand(
                [line(row)],
                chosen.with_keywords({"sampling": {**chosen.sampling, **sampling}}) if sampling else chosen,
                run=info.run,
                environment=environment,
                attached=True,
                numbering=numbering,
                declared=declared,
            )

        async with opened(self.driver, info, made) as run:
            yield run


def _tracking(name: TrackerName, run: RunInfo, settings: RolloutSettings) -> Tracking:
    asked = {"model": run.model, "environments": run.environments, "sampling": settings.sampling}
    about = About(
        run=run.run,
        folder=Path("runs") / run.run,
        settings={**asked, "repeats": settings.repeats, "rollouts": run.total},
    )
    return Tracking(name, about, logger().warning, repeats=settings.repeats or 1)


def _refuse_one_row(rows: object) -> None:
    if isinstance(rows, Mapping | str | bytes):
        raise UsageError("rows is one row where a list of rows is due: [row]")
