"""Batches of groups with signal, for a trainer: `signal_batches`.

plan ──orders──▶ rollouts of a standing run ──records──▶ plan ──groups with signal──▶ next()
  ▲                                                        │
  └──────────── curriculum (its state at the broker) ◀─────┘
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence, Sized
from contextlib import asynccontextmanager
from typing import Unpack

import anyio
from anyio.abc import TaskGroup
from gym_runtime import Client, RolloutSettings
from gym_runtime.client import AnyRow, StandingRun, background, require_keywords
from gym_runtime.errors import GymError, TaskError, UsageError, require_at_least
from gym_runtime.logs import logger
from gym_runtime.messages import Cancelled, Failed, GroupKeywords, RolloutRecord
from gym_runtime.training import Group

from gym_signal.curricula import Curriculum, CurriculumName, made_curriculum
from gym_signal.plan import Bet, Drawn, Order, Plan
from gym_signal.stored import StoredCurriculum
from gym_signal.useful import Useful, total, uses_of

NONE_CAME = 10
"""After so many batches' worth of groups without one for the batch the log says so; if all of them failed,
sampling ends with an error."""
OVERSAMPLING = 100
"""Groups that are sampled for each group of a batch, at most."""


@asynccontextmanager
async def signal_batches(
    gym: Client,
    rows: Sequence[AnyRow],
    settings: RolloutSettings | None = None,
    *,
    want: int,
    repeats: int = 8,
    curriculum: CurriculumName | Curriculum = "posterior",
    name: str = "",
    waves: Sequence[int] = (),
    bet: Bet | None = None,
    signal: bool = True,
    staleness: int | None = None,
    ahead: int | None = None,
    partial: bool = False,
    in_flight: int = 1024,
    oversampling: int | None = OVERSAMPLING,
    draw_seed: int = 0,
    environment: str | None = None,
    **keywords: Unpack[GroupKeywords],
) -> AsyncGenerator[SignalBatches]:
    """Sample groups with signal for as long as the context lasts; `SignalBatches.next` returns each batch.

    Rollouts in progress at the end are cancelled, down to the engine.

    Args:
        rows: dataset rows, as mappings or JSON text.
        want: groups in a batch.
        repeats: rollouts in a group.
        curriculum: ``uniform``, ``filter``, ``posterior``, or an object with the four methods of
            `Curriculum`, whose tasks are the rows' positions.
        name: of this training run: the curriculum's state is stored at the broker under it, and a trainer
            that starts again with the name and the rows goes on from there.
        waves: sample a group in waves of so many rollouts, such as ``(2, 2, 4)``, and stop it between two
            waves if its rewards are equal and will probably stay so; by default no group is stopped.
        bet: when it is stopped; see `Bet`. A group that was likelier to be stopped counts `Group.weight`
            times: multiply its advantages by it.
        signal: False returns groups whose rewards are equal, too.
        staleness: no group is older than so many versions of the weights when it is in a batch. Nothing is
            thrown away for it; sampling waits. None for no bound.
        ahead: batches that are sampled beyond the next one; by default ``staleness``, or 1 without a bound.
        partial: park what is unfinished when a batch is complete: each rollout stops before its next turn,
            and goes on there, before all others, when the next batch is asked for or the weights are
            `installed`. Nothing is sampled meanwhile. Its turns may then be of several weights' versions.
        in_flight: groups in progress at most.
        oversampling: `SignalBatches.next` raises an error when more than so many groups were sampled for each
            group of the batch. None for no bound.
        draw_seed: of the random choices of a curriculum that is named, and of bets.
        environment: for rows without an ``agent_ref``.
        keywords: as in `Client.rollouts`.

    Raises:
        TaskError, UsageError: a row, a name or a value is wrong.
    """
    require_keywords(keywords, signal_batches)
    if not isinstance(gym, Client):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(
            "signal_batches is asynchronous: async with gym_runtime.connect(...) as gym, not connect_sync"
        )
    if not isinstance(rows, Sized):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("groups with signal need all rows at once, as they draw from them: rows=list(rows)")
    sizes = {f"waves[{n}]": size for n, size in enumerate(waves)}
    require_at_least(1, repeats=repeats, oversampling=1 if oversampling is None else oversampling, **sizes)
    if sum(waves) > repeats:
        raise UsageError(f"waves are {sum(waves)} rollouts, and a group has {repeats}: repeats={sum(waves)}")
    if repeats < 2 and signal:
        raise UsageError(
            f"repeats is {repeats}: a group needs 2 rollouts to have signal; or give signal=False"
        )
    await gym.check(rows, settings, environment=environment, **keywords)
    asked = (settings or RolloutSettings()).with_keywords(keywords)
    if asked.seed_repeats or asked.sampling.get("seed") is not None:
        given = "seed_repeats" if asked.seed_repeats else "seed: all rollouts would have the same one"
        raise UsageError(f"groups with signal take no {given}; leave the seed to the engine")
    named = made_curriculum(curriculum, len(rows), repeats, draw_seed)
    stored = StoredCurriculum(named, gym.driver.bus, name, rows) if name else None
    if stored is not None:
        await stored.load()
    plan = Plan(
        stored or named,
        want,
        waves=waves,
        bet=bet,
        chance=getattr(named, "chance", None),
        signal=signal,
        in_flight=in_flight,
        staleness=staleness,
        ahead=ahead,
        seed=draw_seed,
    )
    most = None if oversampling is None else oversampling * want
    # The run ends first, so that its rollouts are cancelled together.
    async with (
        background() as tasks,
        gym.standing_run(settings, environment=environment, **keywords) as run,
    ):
        batches = SignalBatches(gym, plan, run, tasks, rows, want, stored, partial=partial, most=most)
        batches.start_due()
        try:
            yield batches
        finally:
            batches.settle()


class SignalBatches:
    """Batches of groups. Made by `signal_batches`.

    Attributes:
        by_environment: what became of the tokens that were sampled, for each environment.
        step: the same over all environments, for the last step alone: from the batch before the last one to
            the last one.
    """

    def __init__(
        self,
        gym: Client,
        plan: Plan,
        run: StandingRun,
        tasks: TaskGroup,
        rows: Sequence[AnyRow],
        want: int,
        stored: StoredCurriculum | None,
        *,
        partial: bool = False,
        most: int | None = None,
    ) -> None:
        self.by_environment: dict[str, Useful] = {}
        self.step = self._before = Useful()
        self._plan, self._run, self._tasks, self._rows, self._stored = plan, run, tasks, rows, stored
        self._gym, self._want = gym, want
        self._cancelled = False
        self._partial, self._parked = partial, False
        self._rollouts: dict[Drawn, _Rollouts] = {}
        self._handed_over: dict[int, tuple[Drawn, str]] = {}
        self._changed = anyio.Event()
        self._without, self._failed, self._warn_at = 0, 0, NONE_CAME * want
        self._last_failure = ""
        self._most, self._since_batch = most, 0
        self._chosen: list[Drawn] = []
        self._asking = anyio.Lock()

    @property
    def useful(self) -> Useful:
        """What became of the tokens that were sampled."""
        return total(self.by_environment.values())

    async def next(self) -> list[Group]:
        """The next batch, oldest groups first. If it is cancelled, the batch stays for the next call.

        Calls at the same time are answered one after the other. The weights trained on all batches before are
        taken as installed; `installed` says so earlier.

        Raises:
            GymError: the run is over; all groups failed, and the message says why; too few groups have
                signal (``oversampling``); or the curriculum draws nothing more.
        """
        async with self._asking:
            return await self._next()

    async def _next(self) -> list[Group]:
        if not self._chosen:
            self._plan.installed()
            await self._go_on()
            self._chosen = await self._complete()
        self._since_batch = 0
        if self._stored is not None:
            await self._stored.store(whole=True)
        if self._partial:
            self._parked = True
            await self._gym.pause(self._run.run)
        # Nothing is awaited from here on.
        chosen, self._chosen = self._chosen, []
        self.start_due()
        self.settle()
        groups = [self._group(drawn) for drawn in chosen]
        useful = self.useful
        self.step, self._before = useful.since(self._before), useful
        return groups

    async def _complete(self) -> list[Drawn]:
        """Wait until a batch is complete, and take it."""
        while (chosen := self._plan.take()) is None:
            if self._failed >= NONE_CAME * self._want:
                raise GymError(f"the last {self._failed} groups failed: {self._last_failure}")
            if self._most is not None and self._since_batch > self._most:
                raise GymError(
                    f"{self._since_batch} groups were sampled for a batch of {self._want}, and too few had "
                    "signal: mix in tasks of other difficulty, give signal=False, or a larger oversampling"
                )
            self._require_open()
            self.start_due()
            if not self._plan.running:
                raise GymError(
                    f"{len(self._plan.ready)} of the {self._want} groups of a batch are there, none is in "
                    "progress, and the curriculum draws no task"
                )
            self._changed = anyio.Event()
            await self._changed.wait()
        return chosen

    def installed(self) -> None:
        """The weights trained on all batches so far are installed: rollouts that start now have them."""
        self._plan.installed()
        self._tasks.start_soon(self._go_on)

    async def _go_on(self) -> None:
        parked, self._parked = self._parked, False
        if parked:
            try:
                await self._gym.resume(self._run.run)
            except BaseException:
                self._parked = True
                raise
        self.start_due()

    def refuse(self, group: Group) -> None:
        """Count a group of the last batch as not trained on, in `useful`.

        Raises:
            UsageError: it is not in the last batch.
        """
        found = self._handed_over.pop(group.task_index, None)
        if found is None:
            raise UsageError(f"group {group.task_index} is not in the last batch, or was refused before")
        refused, where = found
        self._of(where).refuse(refused)
        self._run.add_use(where, "refused", refused.spent)

    def settle(self) -> None:
        """The last batch was trained on, but for the groups that were refused."""
        for group, where in self._handed_over.values():
            self._tell(where, group)
        self._handed_over = {}

    def _of(self, environment: str) -> Useful:
        return self.by_environment.setdefault(environment, Useful())

    def _tell(self, environment: str, group: Drawn) -> None:
        """Count a group's tokens in the run's figures, which never go down."""
        for use, tokens in uses_of(group).items():
            self._run.add_use(environment, use, tokens)

    @property
    def free_staleness(self) -> int | None:
        """The smallest ``staleness`` under which engines would not wait; None before a group has ended."""
        return self._plan.free_staleness

    # -- sampling -------------------------------------------------------------------------------------

    def start_due(self) -> None:
        """Start what is to be started now."""
        if not (self._cancelled or self._parked or self._run.over):
            for order in self._plan.due():
                self._start(order)

    def _require_open(self) -> None:
        if self._cancelled:
            raise GymError(f"run {self._run.run} is over: it was cancelled")
        self._run.require_open()

    def _start(self, order: Order) -> None:
        rollouts = self._rollouts.get(order.group)
        if rollouts is None:
            if not 0 <= order.group.task < len(self._rows) or order.group.size < 1:
                raise UsageError(
                    f"the curriculum drew task {order.group.task} with {order.group.size} rollouts: tasks "
                    f"are 0 to {len(self._rows) - 1}, with at least 1"
                )
            rollouts = self._rollouts[order.group] = _Rollouts(self._run, self._rows[order.group.task])
        for member in order.members:
            self._tasks.start_soon(self._member, order.group, rollouts, member)

    async def _member(self, group: Drawn, rollouts: _Rollouts, member: int) -> None:
        try:
            record = await rollouts.rollout(member)
        except GymError:
            if not self._run.over:
                raise
            self._changed.set()  # `next` raises it
            return
        # Nothing more may be started for a cancelled run; one rollout may also be cancelled alone.
        if isinstance(record.outcome, Cancelled) and not self._cancelled:
            self._cancelled = (await self._gym.driver.run(self._run.run)).state != "active"
            self._changed.set()
        fault = record.outcome.fault if isinstance(record.outcome, Failed) else None
        tokens = int(record.numbers.get("output_tokens", 0))
        self._of(record.environment).sampled += tokens
        if fault is not None:
            self._last_failure = fault.message
        # A cancelled rollout is wanted no more.
        hopeless = record.reward is None and (fault is None or fault.kind == TaskError.kind)
        order = self._plan.finished(group, member, record.reward, tokens, hopeless=hopeless)
        if order is not None:
            self._start(order)
        if group.ended is not None:
            await self._ended(group)

    async def _ended(self, group: Drawn) -> None:
        self._since_batch += 1
        if group.ended == "signal":
            self._without, self._failed, self._warn_at = 0, 0, NONE_CAME * self._want
        else:
            where = self._rollouts.pop(group).task.environment
            self._of(where).add(uses_of(group))
            self._tell(where, group)
            self._without += 1
            self._failed = self._failed + 1 if group.ended == "failed" else 0
            if self._without == self._warn_at:
                self._warn_at *= 2  # a line each time the number doubles
                logger().warning(
                    "no group with signal came",
                    groups=self._without,
                    failed=self._failed,
                    remedy="mix in tasks of other difficulty, or give signal=False",
                )
        if self._stored is not None:
            await self._stored.store(whole=False)
        self.start_due()
        self._changed.set()

    def _group(self, drawn: Drawn) -> Group:
        rollouts = self._rollouts.pop(drawn)
        where = rollouts.task.environment
        self._of(where).taken(drawn)
        self._handed_over[rollouts.task.task_index] = drawn, where
        records = sorted(rollouts.records, key=lambda record: record.rollout_index)
        return Group(
            run=self._run.run,
            task_index=rollouts.task.task_index,
            environment=rollouts.task.environment,
            rollouts=[record for record in records if record.reward is not None],
            failures=[record for record in records if record.reward is None],
            row=rollouts.row,
            key=drawn.task,
            weight=drawn.weight,
        )


class _Rollouts:
    """The rollouts of one group."""

    def __init__(self, run: StandingRun, row: AnyRow) -> None:
        self.row, self.task = row, run.task(row)
        self.records: list[RolloutRecord] = []

    async def rollout(self, member: int) -> RolloutRecord:
        record = await self.task.rollout(member)
        self.records.append(record)
        return record
