"""Rows in, rollouts out: whole runs, groups, and one rollout at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from gym_runtime import clock
from gym_runtime.client.engine_check import check_engine
from gym_runtime.client.publishing import IN_FLIGHT
from gym_runtime.client.resources import Resources
from gym_runtime.client.roles import require_declared, with_served_roles
from gym_runtime.client.row_sources import AnyRow, InputOrder, RowSources, line
from gym_runtime.client.standing_run import StandingRun, opened
from gym_runtime.client.streaming import ResultStream
from gym_runtime.client.window import Window
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import UsageError
from gym_runtime.files.rows import Numbering, check_sampling, expand, whole_groups
from gym_runtime.logs import logger
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_info import RunInfo, new_run_id
from gym_runtime.rollout.comparisons import Comparisons
from gym_runtime.rollout.groups import Cancel, Group, GroupPolicy, Groups, Make
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.rpc.roll_call import all_workers
from gym_runtime.trackers.tracker import About, TrackerName
from gym_runtime.trackers.tracking import Tracking, tracked
from gym_runtime.workers.adapter import ModelSettings

POLICY = "policy"
"""The pool of the policy, which may also answer in a role."""
Declared = Mapping[str, LoadedEnvironment]


class Rollouts(Resources):
    """Has rollouts made.

    Attributes:
        served: the model that `connect` has started as the pool ``policy``, if it has.
    """

    served: ModelSettings | None = None

    async def workers(self) -> list[Heartbeat]:
        """Every worker that is alive. Its load is that of its last announcement; `status` asks each."""
        return await all_workers(self.bus)

    def rollouts(
        self,
        rows: Iterable[AnyRow],
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        in_flight: int = IN_FLIGHT,
        ordered: bool = False,
        track: TrackerName | None = None,
        **keywords: Any,
    ) -> AsyncGenerator[RolloutRecord]:
        """Have rollouts made of dataset rows; yields each record once, in the order of completion.

        Leaving the loop early cancels what is left. Failed rollouts are yielded too: their ``reward`` is
        None and their ``outcome`` says why.

        Args:
            rows: dataset rows, as mappings or JSON text. A list is checked whole before anything starts;
                any other iterable is read as places become free, so memory does not grow with it.
            settings: how rollouts are made.
            environment: for rows without an ``agent_ref``.
            in_flight: rollouts published and not yet yielded, at most.
            ordered: yield in the order of the rows instead; a record that overtook others waits in memory.
            track: an experiment tracker that is told of the run every few seconds and at its end: aggregates
                and a few examples. TensorBoard's files are put into ``runs/RUN``.
            keywords: fields of `RolloutSettings` to change in ``settings``, such as ``repeats``; others win
                over the rows: the fields of `Sampling`, such as ``temperature``, ``top_k`` or ``seed``, and
                those of ``responses_create_params``.

        Raises:
            TaskError, UsageError: a row, a name or a value is wrong, the model's engine does not have a
                sampling parameter, or no worker serves a role; of a list, nothing was started.
        """
        _refuse_one_row(rows)
        return self._rollouts(RowSources(rows), settings, environment, in_flight, ordered, track, keywords)

    async def _rollouts(
        self,
        sources: RowSources,
        settings: RolloutSettings | None,
        environment: str | None,
        in_flight: int,
        ordered: bool,
        track: TrackerName | None,
        keywords: Mapping[str, Any],
    ) -> AsyncGenerator[RolloutRecord]:
        specs, run = await self._specs(sources, settings, environment, keywords)
        order = InputOrder[RolloutRecord]()
        if ordered:
            specs = order.expecting(specs, lambda spec: (spec.task_index, spec.rollout_index))
        made = self.make(specs, run, in_flight=in_flight)
        if track is not None:
            made = self._tracked(track, made, run, settings, keywords)
        async with aclosing(made) as records:
            async for record in records:
                if not ordered:
                    yield record
                    continue
                for due in order.arrived((record.task_index, record.rollout_index), record):
                    yield due
        for due in order.rest():
            yield due

    def _tracked(
        self,
        track: TrackerName,
        made: AsyncGenerator[RolloutRecord],
        run: RunInfo,
        settings: RolloutSettings | None,
        keywords: Mapping[str, Any],
    ) -> AsyncGenerator[RolloutRecord]:
        chosen = (settings or RolloutSettings()).with_keywords(keywords)
        asked = {"model": run.model, "environments": run.environments, "sampling": chosen.sampling}
        about = About(
            run=run.run,
            folder=Path("runs") / run.run,
            settings={**asked, "repeats": chosen.repeats, "rollouts": run.total},
        )
        return tracked(made, Tracking(track, about, logger().warning, repeats=chosen.repeats))

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
        sources = RowSources(rows, keys)
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
                        comparisons.expect(task)
                        await self.publish([task])
                    case Cancel(task_index):
                        await self.cancel(record.run, task_index)
                    case Group():
                        row, key = sources.take(command.task_index)
                        group = msgspec.structs.replace(command, row=row, key=key)
                        for due in order.arrived(group.task_index, group) if ordered else (group,):
                            await stream.send(due)

        async def work() -> None:
            await self._drive(
                specs, run, window, take, comparisons=comparisons, more=lambda: groups.replacements
            )
            for due in order.rest():
                await stream.send(due)

        async with aclosing(self._yielded(work, stream)) as complete:
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
        if chosen.repeats != 1:
            raise UsageError(f"repeats is {chosen.repeats}; a standing run makes one rollout for each row")
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

        async with opened(self, info, made) as run:
            yield run

    async def _specs(
        self,
        sources: RowSources,
        settings: RolloutSettings | None,
        environment: str | None,
        keywords: Mapping[str, Any],
    ) -> tuple[Iterable[RolloutSpec], RunInfo]:
        """The rollouts of a new run, and what others are told of it."""
        chosen = self._settings(settings, keywords)
        info = self._run_info(chosen, environments=[environment] if environment else [])
        declared = await self._declared(environment)
        specs = sources.noting(
            expand(
                sources.lines(),
                chosen,
                run=info.run,
                environment=environment,
                attached=True,
                numbering=Numbering(apart=sources.apart),
                declared=declared,
            )
        )
        named = () if chosen.agent else self._named_roles(settings, keywords)
        if not sources.listed:
            require_declared(named, info.environments, declared)
            return await with_served_roles(self.workers, specs), info
        listed = whole_groups(list(specs))
        require_declared(named, {spec.environment for spec in listed}, declared)
        listed = list(await with_served_roles(self.workers, listed))
        return listed, msgspec.structs.replace(
            info,
            total=len(listed),
            environments=sorted({spec.environment for spec in listed}),
            agents=sorted({spec.agent for spec in listed}),
        )

    def _settings(self, settings: RolloutSettings | None, keywords: Mapping[str, Any]) -> RolloutSettings:
        chosen = (settings or RolloutSettings()).with_keywords(keywords)
        if self.served is not None and chosen.model_pool == POLICY:
            check_engine(self.served, check_sampling(chosen.sampling))
        return replace(chosen, roles={**self.roles, **chosen.roles})

    @staticmethod
    def _named_roles(settings: RolloutSettings | None, keywords: Mapping[str, Any]) -> tuple[str, ...]:
        """The roles that the caller names, apart from those that `connect` serves."""
        chosen = (settings or RolloutSettings()).with_keywords(keywords)
        return tuple({**chosen.roles, **chosen.role_sampling})

    def _run_info(self, settings: RolloutSettings, *, environments: Sequence[str]) -> RunInfo:
        model = settings.model_pool
        if self.served is not None and model == POLICY:
            model = f"{self.served.provider}/{self.served.name}"
        return RunInfo(
            run=new_run_id(), total=0, environments=list(environments), created_s=clock.now(), model=model
        )


def _refuse_one_row(rows: object) -> None:
    if isinstance(rows, Mapping | str | bytes):
        raise UsageError("rows is one row where a list of rows is due: [row]")
