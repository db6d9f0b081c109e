"""`Client`: everything that a trainer needs from a running system."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, Unpack

import anyio
from anyio.abc import TaskGroup

from gym_runtime.bus.interface import Bus
from gym_runtime.client import standing_run
from gym_runtime.client.collected_groups import InputOrder, run_groups
from gym_runtime.client.progress import shown
from gym_runtime.client.recorded_runs import Expecting, recording, run_recorded
from gym_runtime.client.reward_watch import Watch
from gym_runtime.client.row_sources import (
    POLICY,
    AnyRow,
    NewRuns,
    RowSources,
    Started,
    line,
    served_model,
)
from gym_runtime.client.run import IN_FLIGHT, collect, run_rollouts
from gym_runtime.client.runs import Runs
from gym_runtime.client.session import Environments, EnvironmentSession, Said
from gym_runtime.client.standing_run import StandingRun
from gym_runtime.client.status import RunProgress, Status, look, whole
from gym_runtime.client.streaming import Lifetime
from gym_runtime.client.tracking import track_rollouts
from gym_runtime.client.tree_groups import TreePlan, grown
from gym_runtime.client.weights import Engines
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import GymError, UsageError, require_at_least
from gym_runtime.files.dataset import Dataset
from gym_runtime.files.forks import NO_CHANGE, Change, forked
from gym_runtime.files.recorded_run import RecordedRun
from gym_runtime.files.rows import Numbering, expand
from gym_runtime.files.stored_images import Images
from gym_runtime.logs import logger
from gym_runtime.messages import calls
from gym_runtime.messages.alarms import Alarm
from gym_runtime.messages.fork import OnDifference
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_keywords import RolloutKeywords
from gym_runtime.messages.rollout_settings import OTHER_NAMES, RolloutSettings
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_control import RunControl, changed, settable
from gym_runtime.messages.stored_records import RunInfo, asked_here, new_run_id
from gym_runtime.rollout.groups import Group, GroupPolicy
from gym_runtime.rpc.members import Heartbeat, all_workers, drain, named
from gym_runtime.timing import PATIENCE_S
from gym_runtime.workers.adapter import ModelSettings

CONTROL_S = 600.0
"""How long a command to model workers, such as new weights, may take by default."""


class Joined(NamedTuple):
    """A connection to a system.

    Attributes:
        urls: the broker's.
        tasks: lasts as long as the connection.
        served: the model that was started as the pool ``policy``, if one was.
        started: what the system's workers serve, where all of them were started with it.
    """

    urls: Sequence[str]
    bus: Bus
    tasks: TaskGroup
    served: ModelSettings | None = None
    started: Started | None = None


Joining = Callable[[], AbstractAsyncContextManager[Joined]]
Watching = Callable[[Callable[[Alarm], None]], AbstractAsyncContextManager[Watch]]


class Client:
    """A connection to a running system. Created by `connect`.

    It is open within ``async with``; or from `open` to `close`, which may be called by different tasks, such
    as the cells of a notebook. It may be opened again.

    Args:
        roles: which pool serves which role, where the settings of rollouts do not say.
        joining: connects the client for as long as the context lasts.
        watching: looks at the rewards of all runs while it lasts; is given what to call with alarms.
        prefix: of the system's subjects.

    Attributes:
        urls: the broker's, while the client is open.
    """

    urls: tuple[str, ...] = ()

    def __init__(
        self,
        bus: Bus | None = None,
        tasks: TaskGroup | None = None,
        roles: Mapping[str, str] | None = None,
        *,
        joining: Joining | None = None,
        watching: Watching | None = None,
        prefix: str = "gym",
    ) -> None:
        self.roles = dict(roles or {})
        self.prefix = prefix
        self.new_runs = NewRuns(self.workers, self._declared, self.roles)
        self._connected: tuple[Runs, Environments] | None = None
        if bus is not None and tasks is not None:
            self._connect(bus, tasks)
        self._joining, self._watching = joining, watching
        self._entered: AbstractAsyncContextManager[None] | None = None
        self._lifetime: Lifetime | None = None

    async def __aenter__(self) -> Self:
        entered = self._join()
        await entered.__aenter__()
        # Only now: where it is refused, the client is open, and stays so.
        self._entered = entered
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        # Before the exit, so that the client can be opened again whatever the exit raises.
        entered, self._entered = self._entered, None
        return None if entered is None else await entered.__aexit__(kind, error, trace)

    async def open(self) -> Self:
        """Connect; returns the client. Use this where ``async with`` is not possible.

        Raises:
            UsageError, BrokerError: the message says what is missing.
        """
        if self._lifetime is not None:
            raise UsageError("the client is open already")
        self._lifetime = Lifetime(self._join())
        try:
            await self._lifetime.open()
        # Also for a cancellation: the client is not open, and may be opened again.
        except BaseException:
            self._lifetime = None
            raise
        return self

    async def close(self) -> None:
        """Leave the system, and stop it if this client started it.

        Raises:
            GymError: what broke the connection, if it broke.
        """
        lifetime, self._lifetime = self._lifetime, None
        if lifetime is not None:
            await lifetime.close()

    @asynccontextmanager
    async def _join(self) -> AsyncGenerator[None]:
        if self._joining is None or self._connected is not None:
            raise UsageError("the client is open already; connect(...) makes another one")
        async with self._joining() as joined:
            self.urls = tuple(joined.urls)
            self.new_runs.served, self.new_runs.started = joined.served, joined.started
            self._connect(joined.bus, joined.tasks)
            alarms = self.driver.alarms
            try:
                async with self._watching(alarms.ring) if self._watching else nullcontext() as alarms.watch:
                    yield
            finally:
                self._connected = None

    def _connect(self, bus: Bus, tasks: TaskGroup) -> None:
        runs = Runs(bus, tasks)
        startable = partial(self.new_runs.startable, agents=False)
        self._connected = runs, Environments(runs, self.roles, startable)

    @property
    def driver(self) -> Runs:
        """The runs of this connection, for this project's own programs."""
        return self._connection()[0]

    @property
    def alarms(self) -> Sequence[Alarm]:
        """The alarms so far, of all runs of this connection; see ``watch_rewards`` of `connect`."""
        return self.driver.alarms.raised

    @property
    def _environments(self) -> Environments:
        return self._connection()[1]

    def _connection(self) -> tuple[Runs, Environments]:
        """
        Raises:
            UsageError: the client is not open.
        """
        if self._connected is None:
            raise UsageError("the client is not open: async with connect(...) as gym, or await gym.open()")
        return self._connected

    # -- rollouts of rows -----------------------------------------------------------------------------

    def rollouts(
        self,
        rows: Iterable[AnyRow] | Dataset,
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        in_flight: int = IN_FLIGHT,
        ordered: bool = False,
        track: str | None = None,
        output: str | Path | None = None,
        images: Images = "inline",
        resume: bool = False,
        retry_failed: bool = False,
        progress: bool = False,
        **keywords: Unpack[RolloutKeywords],
    ) -> AsyncGenerator[RolloutRecord]:
        """Run rollouts of dataset rows; yields each record once, in the order of completion.

        Leaving the loop early cancels the rest. Failed rollouts are yielded too: their ``reward`` is
        None and their ``outcome`` says why.

        Args:
            rows: dataset rows, as mappings or JSON text; or a dataset from `open_dataset`. A list is checked
                whole before anything starts; any other iterable is read as places become free, so memory
                does not grow with it.
            settings: how rollouts are run.
            environment: for rows without an ``agent_ref``.
            in_flight: rollouts published and not yet yielded, at most.
            ordered: yield in the order of the rows instead; a record that overtook others waits in memory.
            track: an experiment tracker that gets aggregates and a few examples every few seconds and at the
                end of the run: ``wandb``, ``mlflow``, ``tensorboard``, ``trackio``, or a plugin's tracker.
                TensorBoard's files are put into ``runs/RUN``.
            output: write the rows to this file, with the files beside it that ``gym-runtime run -o`` writes;
                each row is in the file within moments. All rows are read before anything starts.
            images: how ``output`` stores the rows' images: ``inline``, as ``files`` in the folder
                ``OUTPUT_images``, each once, or ``none`` of them. The records that are yielded have them all.
            resume: go on with the files of ``output``: rollouts in them are neither run nor yielded. The rows
                and the settings must be the same; without files it is a new run.
            retry_failed: with ``resume``: run all failed rollouts again, even if they failed for good.
            progress: show one line that is replaced as rollouts are finished: below the cell of a notebook,
                else on standard error.
            keywords: fields of `RolloutSettings` to change in ``settings``, such as ``repeats``; and fields
                that override the rows: those of `Sampling`, such as ``temperature``, ``top_k`` or ``seed``,
                and those of ``responses_create_params``.

        Raises:
            TaskError, UsageError: a row, a name or a value is wrong, or no worker serves a role; for a list,
                nothing was started. Or the files of ``output`` are in use, or belong to another run.
        """
        _refuse(rows, in_flight)
        if resume and output is None:
            raise UsageError("resume continues with the files of an output: give output=FILE too")
        if retry_failed and not resume:
            raise UsageError("retry_failed is for a run that exists: give resume=True too")
        asked = _asked(settings, keywords, Client.rollouts)

        async def run() -> AsyncGenerator[RolloutRecord]:
            order = InputOrder[RolloutRecord]()

            def expecting(specs: Iterable[RolloutSpec]) -> Iterable[RolloutSpec]:
                return order.expecting(specs, lambda spec: (spec.task_index, spec.rollout_index))

            async with AsyncExitStack() as stack:
                if output is not None:
                    dataset = await stack.enter_async_context(self.new_runs.dataset(rows, environment))
                    plan = await self.new_runs.plan(dataset, asked)
                    await self.new_runs.served_only(plan.one_of_each())
                    recorded = await stack.enter_async_context(
                        recording(
                            plan,
                            self.new_runs,
                            output,
                            resume=resume,
                            retry_failed=retry_failed,
                            images=images,
                        )
                    )
                    info = recorded.plan.info(recorded.run, recorded.missing, recorded.model)
                    records = self.recorded(
                        recorded, in_flight=in_flight, expecting=expecting if ordered else None
                    )
                else:
                    if isinstance(rows, Dataset):
                        specs, info = await self.new_runs.of_dataset(rows, asked)
                    else:
                        sources = RowSources(rows, remembered=False)
                        specs, info = await self.new_runs.of_rows(sources, asked, environment)
                    specs = expecting(specs) if ordered else specs
                    records = run_rollouts(self.driver, specs, info, in_flight=in_flight)
                if track is not None:
                    records = track_rollouts(track, records, info, asked, self.driver.alarms)
                if progress:
                    records = shown(records, lambda record: [record], info.total)
                # A generator that is dropped without `aclose` is closed some time later, in another task.
                await stack.enter_async_context(aclosing(records))
                async for record in records:
                    if not ordered:
                        yield record
                        continue
                    for due in order.arrived((record.task_index, record.rollout_index), record):
                        yield due
                for due in order.rest():
                    yield due

        # Not a generator itself, so that the checks above run at the call, not at the first record.
        return run()

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
        progress: bool = False,
        tree: TreePlan | None = None,
        **keywords: Unpack[RolloutKeywords],
    ) -> AsyncGenerator[Group]:
        """As `rollouts`, but each row's rollouts come together, as soon as all of them are settled.

        Rows of a list with the same text are one group, unless there are ``keys``. Each row of any other
        iterable is a group of its own, so rows may come again and again, as in ``itertools.cycle(rows)``.

        Args:
            on_failure: what happens to a group in which a rollout fails for good; see
                `gym_runtime.rollout.groups`.
            in_flight: rollouts published and not yet yielded, at most. Those of a group that is not whole yet
                count until they have ended.
            ordered: yield in the order of the rows instead; a group that overtook others waits in memory.
            keys: your name for each row, of any type: each row is its own group, whatever its text, and
                its `Group.key` is this name.
            progress: as in `rollouts`.
            tree: the rollouts of each row are forked, and a group has its forks, too, after them. A fork that
                fails for good is left out, and under ``mask`` it has no reward.

        Raises:
            TaskError, UsageError: as `rollouts`; for a list, nothing was started.
        """
        _refuse(rows, in_flight)
        sources = RowSources(rows, keys, remembered=True)
        asked = _asked(settings, keywords, Client.groups)
        if tree is not None and asked.sampling.get("seed") is not None:
            raise UsageError("all forks of a tree would have the same seed: leave the seed to the engine")
        specs, info = await self.new_runs.of_rows(sources, asked, environment)
        groups = run_groups(
            self.driver,
            specs,
            info,
            sources,
            on_failure=on_failure,
            in_flight=in_flight,
            ordered=ordered,
            seeded=asked.seed_repeats,
        )
        if progress:
            groups = shown(groups, lambda group: group.records, info.total)
        if tree is not None:
            groups = grown(
                groups,
                tree,
                lambda: self.standing_run(replace(asked, repeats=1), environment=environment),
                self.driver.tasks,
                in_flight=in_flight,
                ordered=ordered,
                masked=on_failure == "mask",
            )
        async with aclosing(groups):
            async for group in groups:
                yield group

    def fork(
        self,
        row: RolloutRecord | AnyRow,
        turn: int,
        times: int = 1,
        *,
        change: Change = NO_CHANGE,
        on_difference: OnDifference = "fail",
        settings: RolloutSettings | None = None,
        environment: str | None = None,
        output: str | Path | None = None,
        resume: bool = False,
        **keywords: Unpack[RolloutKeywords],
    ) -> AsyncGenerator[RolloutRecord]:
        """Run new rollouts that begin with the first turns of a stored one; yields each as `rollouts` does.

        The recorded answers are used, and the model is asked from the next turn on. The environment's calls
        of the shared turns are made again in a new session. ``_gym.fork`` of a record's row says which
        rollout was forked, and how many items of the transcript are shared. `gym_runtime.training.forked`
        makes the row alone, for `groups` and files.

        Args:
            row: a record, or a result row.
            turn: how many turns are shared.
            times: how many rollouts.
            change: what differs from the recorded rollout.
            on_difference: what follows if a repeated call is answered differently: ``fail``, or ``go_on``
                with the new answer.
            environment: for a row without an ``agent_ref``.
            settings, output, resume, keywords: as for `rollouts`.

        Raises:
            UsageError, TaskError: the rollout cannot be forked there; or as `rollouts`.
        """
        if "repeats" in keywords:
            raise UsageError("a fork has times for repeats: fork(row, turn, times)")
        if times < 1:
            raise UsageError(f"times is {times}: a fork makes at least one rollout")
        made = forked(row, turn, change, on_difference=on_difference)
        asked = replace(_asked(settings, keywords, Client.fork), repeats=times)
        return self.rollouts([made], asked, environment=environment, output=output, resume=resume)

    async def check(
        self,
        rows: Sequence[AnyRow],
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        **keywords: Unpack[RolloutKeywords],
    ) -> int:
        """Check rows and settings as `rollouts` does, without starting anything; returns how many rollouts
        they make.

        Raises:
            TaskError, UsageError: as `rollouts`.
        """
        _refuse(rows, 1)
        sources = RowSources(rows, remembered=False)
        asked = _asked(settings, keywords, Client.check)
        specs, _ = await self.new_runs.of_rows(sources, asked, environment)
        return len(list(specs))

    @asynccontextmanager
    async def standing_run(
        self,
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        **keywords: Unpack[RolloutKeywords],
    ) -> AsyncGenerator[StandingRun]:
        """A run that takes rows one by one, for as long as the context lasts; see `StandingRun.rollout`.

        Rollouts in progress at its end are cancelled.

        Args:
            environment: for rows without an ``agent_ref``.
            keywords: as in `rollouts`, except ``repeats`` and ``seed_repeats``.

        Raises:
            UsageError: a name or a value is wrong.
        """
        chosen = await self.new_runs.settings(_asked(settings, keywords, Client.standing_run))
        if chosen.repeats not in (None, 1):
            raise UsageError(f"repeats is {chosen.repeats}; a standing run makes one rollout for each row")
        if chosen.seed_repeats:
            raise UsageError(
                "seed_repeats would give all rollouts of a standing run, and all forks of a tree, "
                "one seed: leave the seed to the engine"
            )
        chosen = replace(chosen, repeats=1)
        declared = await self._declared(environment)
        numbering = Numbering(apart=True)
        info = self.new_runs.info(chosen, environment)

        def spec_of(row: AnyRow, sampling: Mapping[str, Any]) -> Iterator[RolloutSpec]:
            specs = expand(
                [line(row)],
                chosen.with_keywords({"sampling": {**chosen.sampling, **sampling}}) if sampling else chosen,
                run=info.run,
                environment=environment,
                attached=True,
                numbering=numbering,
                declared=declared,
            )
            return self.new_runs.startable(specs)

        async with standing_run.opened(self.driver, info, spec_of) as run:
            yield run

    async def publish(
        self,
        rows: Iterable[AnyRow] | Dataset,
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        **keywords: Unpack[RolloutKeywords],
    ) -> RunInfo:
        """Put the rollouts of all rows onto the queues of a system, and return the run's description.

        The rollouts run with or without a client; `collect` with the run's id fetches them. A name that no
        worker serves now is not an error: workers may be started later.

        Args:
            rows: dataset rows, as `rollouts` takes them. All are checked before the first is published.
            settings, environment, keywords: as for `rollouts`.

        Raises:
            UsageError: a row, a name or a value is wrong; nothing was published.
        """
        async with self.new_runs.dataset(rows, environment) as dataset:
            asked = _asked(settings, keywords, Client.publish)
            plan = await self.new_runs.plan(dataset, asked)
            list(self.new_runs.startable(plan.one_of_each()))
            served = served_model(await self.workers(), plan.settings.model_pool)
            model = f"{served.provider}/{served.name}" if served else ""
            info = plan.info(new_run_id(), plan.rollouts, model)
            try:
                await self.driver.open_run(info)
                await self.driver.publish(plan.specs(info.run, attached=False))
            except BaseException:
                # The caller never gets the run's id, so the published rollouts would run in vain. `cancel`
                # empties the queue first, which gives a full broker the room to store that the run is over.
                ended = False
                try:
                    # Not a few seconds: over a slow link the rollouts that are being sent go first.
                    with anyio.move_on_after(PATIENCE_S, shield=True), suppress(GymError):
                        await self.driver.cancel(info.run)
                        ended = True
                finally:
                    if not ended:
                        logger().warning(
                            f"run {info.run} was published in part, and perhaps goes on; to end it: "
                            f"gym-runtime cancel {info.run}"
                        )
                raise
            if (now := await self.driver.known(info)).closed:
                # The run was cancelled meanwhile; nothing waits for the tasks published since then.
                await self.driver.close_run(now, state=now.state)
        return info

    def recorded(
        self,
        recorded: RecordedRun,
        *,
        in_flight: int = IN_FLIGHT,
        note: Callable[[str], None] | None = None,
        expecting: Expecting | None = None,
    ) -> AsyncGenerator[RolloutRecord]:
        """Run the rollouts that a recorded run still lacks; yields each one.

        Its row is in the file within moments. Results and journals that a dead client of the run left at the
        broker are used. Leaving early cancels the rest, and the run can be resumed.

        Args:
            in_flight: rollouts published and not yet yielded, at most.
            note: called with each message for the user.
            expecting: called with the rollouts that will be yielded, in the order of the rows.

        Raises:
            UsageError: another process executes this run, the rows' file has changed, or the disk is full.
        """
        return run_recorded(self.driver, recorded, in_flight=in_flight, note=note, expecting=expecting)

    # -- sessions and verdicts ------------------------------------------------------------------------

    async def environments(self, *names: str) -> list[LoadedEnvironment]:
        """The environments that resource workers serve now, or those of these names, sorted.

        Raises:
            UsageError: no environment is served, or one of the named ones is not.
            GymError: the workers of one do not answer.
        """
        served = await self._environments.served()
        # Without names, and with nothing served, one empty name: it leads to the error.
        for name in names or ("",) * (not served):
            if name not in served:
                what = f"environment '{name}'" if name else "an environment"
                raise UsageError(f"no worker serves {what}: gym-runtime start resource:{name or 'NAME'}")
        return [served[name] for name in sorted(set(names) or served)]

    @asynccontextmanager
    async def session(
        self, row: AnyRow, *, environment: str | None = None, timeout_s: float | None = None
    ) -> AsyncGenerator[EnvironmentSession]:
        """A session of an environment, for a caller that runs the model itself; it ends with the context.

        Args:
            row: a dataset row, whose fields the environment reads.
            environment: for a row without an ``agent_ref``.
            timeout_s: how many seconds it may last; by default the environment's ``timeout_s``. The session
                of a dead client is released after that.

        Raises:
            TaskError, UsageError: the row or a name is wrong.
            GymError: the environment could not open it, or no worker serves it.
        """
        async with self._environments.session(row, environment, timeout_s) as session:
            await session.open()
            yield session

    async def verify(
        self, row: AnyRow, response: Said, *, environment: str | None = None, timeout_s: float | None = None
    ) -> Verdict:
        """The verdict on a response from elsewhere.

        An environment with state gets a new session, in which the response's tool calls with outputs, or its
        turns, are repeated first. So the response must hold the whole transcript.

        Args:
            response: the text of a message, output items, or a response of the Responses API.

        Raises:
            TaskError, UsageError: the row, the response or a name is wrong.
            GymError: there is no verdict: the verifier raised, a judge was silent, a worker was lost.
        """
        async with self._environments.session(row, environment, timeout_s) as session:
            return await session.judge(response)

    async def _declared(self, environment: str | None) -> Mapping[str, LoadedEnvironment]:
        return await self._environments.declared(environment)

    # -- runs -----------------------------------------------------------------------------------------

    async def run(self, run: str) -> RunInfo:
        """The description of a run.

        Raises:
            UsageError: there is no such run, or the name is not valid.
        """
        return await self.driver.run(run)

    async def runs(self) -> list[RunInfo]:
        """All runs that the broker remembers, oldest first."""
        return await self.driver.runs()

    async def cancel(self, run: str, task_index: int | None = None, rollout_index: int | None = None) -> None:
        """Stop a run, one of its groups, or one rollout: waiting tasks are dropped, running ones stopped.

        What is known of the run then names this process's user and host, and the time.

        Raises:
            UsageError: there is no such run or no such task, or a rollout is named without its task.
        """
        await self.driver.cancel(run, task_index, rollout_index, asked=asked_here())

    async def pause(self, run: str) -> RunControl:
        """Pause a run: nothing of it starts, and each rollout in progress stops before its next turn.

        What a rollout has done is kept, and after `resume` it goes on there; no turn is asked twice. This
        holds until `resume`, whatever ends in between. The time of a pause does not count towards
        ``timeout_s``. An agent that calls no `Rollout.respond`, such as a black box, finishes its rollout.

        Raises:
            UsageError: there is no such run, or it is over.
        """
        return await self.driver.set_control(run, lambda before: changed(before, {"paused": True}))

    async def resume(self, run: str) -> RunControl:
        """Let a paused run go on. It is not the ``resume`` of `rollouts`, which goes on with files.

        Raises:
            UsageError: as `pause`.
        """
        return await self.driver.set_control(run, lambda before: changed(before, {"paused": False}))

    async def set_run(self, run: str, **settings: float | None) -> RunControl:
        """Change a run while it goes on; rollouts that start, or go on after a pause, have the new values.

        Args:
            settings: ``concurrency``: its rollouts in progress at most, for each agent; those in progress
                stay. ``share``, ``priority``, ``max_attempts``, ``max_turns``, ``timeout_s`` and
                ``call_timeout_s``: as in `RolloutSettings`. None for one takes the change back.

        Raises:
            UsageError: as `pause`, or a name or a value is wrong; then nothing is changed.
        """
        return await self.driver.set_control(run, lambda before: changed(before, settable(settings)))

    async def retry_failed(self, run: str) -> int:
        """Run the failed rollouts of a published run again, before they are collected; returns how many.

        The new attempts have the run's limits once more. Rollouts that are compared with others are left out.

        Raises:
            UsageError: there is no such run, it is over, or a client has its failures already.
        """
        return await self.driver.retry_failed(run)

    async def control_of(self, run: str) -> RunControl:
        """What `pause` and `set_run` have set for a run."""
        return await self.driver.control(run)

    def collect(self, run: str) -> AsyncGenerator[RolloutRecord]:
        """The records of a run that was published elsewhere, until it is finished or cancelled.

        They stay at the broker until the run is over; the last client that follows the run then frees them.

        Raises:
            UsageError: there is no such run, or it is over and some of its records are no longer stored.
        """
        return collect(self.driver, run)

    # -- looking around -------------------------------------------------------------------------------

    async def control(
        self, command: calls.Control, *, model: str = "policy", limit_s: float = CONTROL_S
    ) -> dict[str, calls.ControlAnswer]:
        """Pause, resume or change the weights of a model, on all of its workers at once; no rollout ends.

        Returns each worker's answer, by the worker's id.

        Raises:
            UsageError: no worker serves the model.
            ModelRefused: an engine cannot do it.
            GymError: a worker did not answer within ``limit_s`` seconds, or its engine failed.
        """
        return await Engines(self.driver.bus, model, limit_s).control(command)

    async def update_weights(
        self, path: str | PathLike[str], version: str, *, model: str = POLICY, limit_s: float = CONTROL_S
    ) -> None:
        """Have all engines of a model load weights; rollouts in progress wait and go on with the new ones.

        When it returns, every worker serves this version; an engine that was paused before is an error. A
        worker that starts later, or again, loads them before it serves.

        Args:
            path: where each engine finds the weights, also later.
            version: names them in the rows, such as ``step-12``.

        Raises:
            UsageError: no worker serves the model.
            ModelRefused: an engine cannot do it.
            GymError: a worker did not answer within ``limit_s`` seconds, its engine failed, or it serves
                another version; call it again, because the others may have changed.
        """
        await Engines(self.driver.bus, model, limit_s).update(fspath(path), version)

    def weights_paused(
        self, version: str, *, model: str = POLICY, limit_s: float = CONTROL_S
    ) -> AbstractAsyncContextManager[None]:
        """Pause a model while a context lasts, for a trainer that transfers the weights itself.

        When the context is left, every worker serves again and names its weights ``version``. If its body
        raises, generation stays paused, because the weights may be half changed.

        Raises:
            GymError: as `update_weights`.
        """
        return Engines(self.driver.bus, model, limit_s).paused(version)

    async def drain(self, *names: str) -> list[tuple[Heartbeat, calls.Draining]]:
        """Ask workers to leave: they take no new work, finish what they have or give it back, and end.

        Returns the workers' answers at once; `workers` shows when they have left. Their supervisors do not
        replace them, and end with the last one. Calling it again changes nothing.

        Args:
            names: a worker, a kind (``agent``), a pool (``agent:tool_loop``, or ``tool_loop``), or a host.

        Raises:
            UsageError: no worker has, serves or runs on one of the names.
            GymError: a worker did not answer, or these credentials may not ask.
        """
        chosen = named(await self.workers(), names)
        answers = await drain(self.driver.bus, chosen)
        return [(worker, answers[worker.worker]) for worker in chosen if worker.worker in answers]

    async def workers(self) -> list[Heartbeat]:
        """Every live worker, with the load of its last announcement; `status` asks each for its load."""
        return await all_workers(self.driver.bus)

    async def status(self) -> Status:
        """Workers, queue depths and runs, now."""
        return await whole(self.driver.bus, await self.workers(), await self.runs())

    async def progress(self, runs: Iterable[RunInfo]) -> dict[str, RunProgress]:
        """The progress of runs, by their ids."""
        return await look(self.driver.bus, runs)


def _asked(settings: object, keywords: Mapping[str, Any], call: Callable[..., Any]) -> RolloutSettings:
    """
    Raises:
        UsageError: as `require_keywords`; or a value is wrong.
    """
    settings = RolloutSettings() if settings is None else settings
    if not isinstance(settings, RolloutSettings):
        raise UsageError("settings must be RolloutSettings(…); or give its fields as keywords: repeats=4")
    require_keywords(keywords, call)
    return settings.with_keywords(keywords)


def require_keywords(keywords: Iterable[str], call: Callable[..., Any]) -> None:
    """Refuse keywords of a call, beside its own, that are no fields of `RolloutSettings` or of the sampling.

    Raises:
        UsageError: there is no such keyword; with the nearest one.
    """
    known = {*RolloutKeywords.__optional_keys__, *OTHER_NAMES}
    for name in keywords:
        # The sampling has its own words for what no run may set.
        if name not in known and name != "model":
            own = {*inspect.signature(call).parameters} - {"self", "keywords"}
            near = catalogue.suggest(name, sorted({*known, *own}))
            raise UsageError(
                f"there is no setting '{name}'"
                + (near or "; there are the fields of RolloutSettings and of Sampling")
            )


def _refuse(rows: object, in_flight: int) -> None:
    """
    Raises:
        UsageError: these are not rows, or no rollout may run.
    """
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # of pandas: iterating it gives its columns
        raise UsageError("rows is a table: give its rows, as table.to_dict('records') of pandas does")
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable | Dataset):
        raise UsageError(
            "rows must be rows in a list or another iterable, which is not async: [row]; "
            "of a file: gym_runtime.training.open_dataset(FILE, environment=NAME)"
        )
    require_at_least(1, in_flight=in_flight)
