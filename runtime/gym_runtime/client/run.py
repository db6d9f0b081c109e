"""One run of a client: its rollouts are published, their records followed, settled and handed over.

    specs ──▶ published ──▶ (the workers) ──▶ followed ──▶ settled ──▶ taken
                  ▲                                           │
                  └─────────────── a free place ──────────────┘

Each record is handed over once, in the order of the commits; the records of a group that is compared wait for
its comparison, and come together. A `Window` bounds how many rollouts are published and not yet handed over.
While the run goes on its client announces itself, so that workers know that it is alive; however it ends, the
run is closed, and what the broker stored for it is freed.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from functools import partial

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from gym_runtime.client.recovery import Remains
from gym_runtime.client.runs import Runs
from gym_runtime.client.status import REFUSALS_LOOK_S, Counter, watch_refusals
from gym_runtime.client.stored import Restored, StoredResult, stored_results
from gym_runtime.client.streaming import ResultStream, background
from gym_runtime.errors import GymError, UsageError
from gym_runtime.files.keys import KeyCounts
from gym_runtime.messages.names import rollout_token, token
from gym_runtime.messages.outcomes import Cancelled, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec, is_comparison
from gym_runtime.messages.stored_records import RUNS, RunInfo, asked_here
from gym_runtime.rollout.comparisons import Comparisons
from gym_runtime.rollout.journal import journal_subject
from gym_runtime.rpc.members import announce
from gym_runtime.rpc.registry import Heartbeat

IN_FLIGHT = 4096
CANCEL_GRACE_S = 2.0
"""How long a cancelled run's client waits for the records of rollouts that were ending."""
CLOSE_S = 5.0
"""How long a client that ends a run may take to close it."""
SHED = 10_000
"""At least so many of the records that the client has had stay at the broker, to refuse second results."""
REFILL_S = 0.02
"""How long free places are gathered before rollouts are published into them (`Window`)."""
GROUP_SHARE = 16

Take = Callable[[RolloutRecord], Awaitable[None] | None]
Settled = Callable[[int, int], bool]
Keep = Callable[[RolloutRecord], None]


class Window:
    """Places that are taken one by one at first; once all were taken, free places are given out in groups.

    A group is a sixteenth of all places, or the places that became free within `REFILL_S`. If every single
    result led to one new rollout, each would cost this process and the broker a wake-up and a system call, a
    tenth of what a whole rollout costs.

    A rollout that waits for others of its group gives up its place, because they may need it: otherwise a
    group larger than the window would never be complete. Once the group is complete its rollouts take
    places again, before any new rollout does, so that memory is bounded while comparisons are slow.

    Args:
        without: rollouts, by task index and rollout index, that have a result already and took no place.
    """

    def __init__(self, places: int, without: KeyCounts | None = None) -> None:
        self._free = places
        self._share = max(1, places // GROUP_SHARE)
        self._without = KeyCounts() if without is None else without
        self._owed = 0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._refilled = asyncio.Event()
        self._refilled.set()

    async def take(self) -> None:
        """Take a place; wait while no place is free."""
        # A loop: another waiter may have taken the place.
        while not self._free:
            self._refilled.clear()
            await self._refilled.wait()
        self._free -= 1

    def release(self, record: RolloutRecord) -> None:
        """The rollout of this record was handed over, or waits for others of its group."""
        if (record.task_index, record.rollout_index) in self._without:
            return
        # A rollout whose group is complete gets this place, see `take_again`.
        if self._owed:
            self._owed -= 1
            return
        self._free += 1
        # Nothing waits for a place.
        if self._refilled.is_set():
            return
        if self._free >= self._share:
            self._refill()
        elif self._timer is None:
            self._timer = self._loop.call_later(REFILL_S, self._refill)

    def take_again(self, task_index: int, rollout_index: int) -> None:
        """The rollout's group is complete: the rollout takes the next free place."""
        if (task_index, rollout_index) not in self._without:
            self._owed += 1

    def _refill(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._refilled.set()


class Run:
    """One run: `drive` it; or `follow` one that was published elsewhere; or keep it `attached`.

    Args:
        info: its description for others. When this client drives it, a ``total`` of 0 means that the total
            is unknown: it is counted, and stored when the last rollout is published.
        take: gets each record; it is awaited where it returns something to wait for.
        total: how many records there will be; None where that is not known yet, or never.
        more: records to come besides those of the rollouts that `drive` publishes.
        window: its places are taken by rollouts, and lent to others while a record waits for its group.
        settled: whether a rollout, given by task index and rollout index, was handed over before: its record
            is not handed over, does not count, and no group waits for it.
        counter: continues the counts of a client that died.
        restored: puts back what results lack because this client has the rows.
        over: called when somebody has ended the run; records of rollouts in flight may still come.

    Attributes:
        info: as given, with the total once it is known.
        counter: counts the records that were handed over.
        finished: the client has received all records of the run.
    """

    def __init__(
        self,
        runs: Runs,
        info: RunInfo,
        take: Take,
        *,
        total: int | None = None,
        more: int = 0,
        window: Window | None = None,
        settled: Settled | None = None,
        counter: Counter | None = None,
        restored: Restored | None = None,
        over: Callable[[], None] = lambda: None,
    ) -> None:
        self.info, self.finished, self._over = info, False, over
        self.counter = counter or Counter(info.created_s, info.repeats)
        self._runs, self._take, self._settled = runs, take, settled
        self._total, self._more, self._window = total, more, window
        self._restored = restored
        self._comparisons = Comparisons(settled, resumed=settled is not None)
        self._handed_over = self._shed_before = 0
        self._some_cancelled = False
        self._reading: anyio.CancelScope | None = None
        self._publishing: anyio.CancelScope | None = None
        # None while a record is handed over: a reader that takes long must not look like silence.
        self._silent_since_s: float | None = None

    # -- open -----------------------------------------------------------------------------------------

    async def drive(self, specs: Iterable[RolloutSpec]) -> None:
        """Publish rollouts and hand over their records; the run is over however this ends.

        ``specs`` is read as places become free, so memory does not grow with the run.
        """
        # In this order: publishing has ended before the run is closed.
        async with self.attached(), background() as tasks:
            tasks.start_soon(self._publish, specs)
            self.finished = await self.follow(shed=True)

    @asynccontextmanager
    async def attached(self) -> AsyncGenerator[Run]:
        """Keep the run open while this context lasts; afterwards the run is over, however the context ends.

        ``attached`` tasks stop when this client disappears.
        """
        self.info = replace(self.info, attached=True)
        member = Heartbeat(
            worker=token(self.info.run, "run"),
            kind="client",
            pools=[],
            host=socket.gethostname(),
            pid=os.getpid(),
            started_s=self.counter.started_s,
        )

        def current() -> Heartbeat:
            return replace(member, detail=self.counter.detail(), figures=self.counter.figures())

        # Shielded: a client that is gone before its run is closed would have its tasks given back, not ended.
        ready, announced = anyio.Event(), anyio.CancelScope(shield=True)

        async def announce_client() -> None:
            with announced:
                await announce(self._runs.bus, current, ready=ready.set)

        async with background(cancel=False) as tasks:
            tasks.start_soon(announce_client)
            try:
                # Announced before any task is published: agent workers check whether the client is alive.
                await ready.wait()
                await self._runs.open_run(self.info)
                self._runs.tasks.start_soon(self._runs.tidy)
                yield self
            finally:
                # The error that ended the run is what the caller must see, not a failure to close the run.
                with anyio.move_on_after(CLOSE_S, shield=True), suppress(GymError):
                    info = self.counter.told(self.info)
                    state = "finished" if self.finished and not info.cancelled_by else "cancelled"
                    if state == "cancelled" and not info.cancelled_by:
                        here = asked_here()
                        info = replace(info, cancelled_by=here.by, cancelled_s=here.at_s)
                    await self._runs.close_run(info, state=state)
                announced.cancel()

    # -- publish --------------------------------------------------------------------------------------

    async def _publish(self, specs: Iterable[RolloutSpec]) -> None:
        place = self._window and self._window.take
        with anyio.CancelScope() as self._publishing:
            count = await self._runs.publish(specs, place=place)
            if not self.info.total:
                self.info = replace(self.info, total=count)
                await self._runs.open_run(self.info)
            self._total = count
            # The last record may have been handed over before it was known to be the last.
            if self._complete and self._reading is not None:
                self._reading.cancel()

    async def publish_replacement(self, task: RolloutSpec) -> None:
        """Publish a rollout in the place of one that failed; called while that one's record is taken."""
        self._more += 1
        # Before it is published, and so before its record can come.
        self._comparisons.expect(task)
        await self._runs.publish_one(task)

    # -- follow ---------------------------------------------------------------------------------------

    @property
    def _complete(self) -> bool:
        return self._total is not None and self._handed_over >= self._total + self._more

    async def follow(self, *, shed: bool = False) -> bool:
        """Hand over the run's records as they are committed, each once, until all were handed over.

        Args:
            shed: the broker forgets what was handed over long ago, so that a long run needs no more of its
                memory and disk than a short one; no other client can collect all of the run then.

        Returns False if the run is over without that: it was cancelled, and what was in flight then is handed
        over too; or another client had all records and freed them.

        Raises:
            BrokerError: the broker has stored nothing for `status.REFUSED_S`.
            UsageError: results lack what only the client that began the run has.
        """
        run = token(self.info.run, "run")
        # First `followed`: from now on no other client frees the records.
        async with (
            self._runs.followed(run),
            self._runs.alarms.counted_in(run, self.counter),
            background() as tasks,
        ):
            self._reading = tasks.cancel_scope
            tasks.start_soon(self._stop_when_over, run, tasks.cancel_scope)
            tasks.start_soon(watch_refusals, self._runs.bus, self._silent)
            if self.info.attached:
                tasks.start_soon(self._runs.serve_parked, run)
            if not self._complete:
                self._silent_since_s = anyio.current_time()
                async for stored in stored_results(self._runs.bus, run, self._restored):
                    self._silent_since_s = None
                    await self._arrived(stored, tasks, shed=shed)
                    if self._complete:
                        break
                    self._silent_since_s = anyio.current_time()
        if not self._complete or self._some_cancelled:
            now = await self._runs.known(RunInfo(run=run, total=0))
            if now.state == "cancelled":
                self.info = replace(self.info, cancelled_by=now.cancelled_by, cancelled_s=now.cancelled_s)
                for record in self._comparisons.rest():
                    await self._hand_over(record)
        return self._complete

    def _silent(self, for_s: float = REFUSALS_LOOK_S) -> bool:
        """Whether no record has come for so long."""
        since_s = self._silent_since_s
        return since_s is not None and anyio.current_time() >= since_s + for_s

    async def follow_to_end(self) -> tuple[bool, RunInfo]:
        """As `follow`; also what is known of the run now.

        Raises:
            UsageError: another client had all records and freed them before this one came to them.
        """
        complete = await self.follow()
        now = await self._runs.known(self.info)
        if not complete and now.state == "finished":
            await self._runs.stored_run(self.info.run)  # for its error
        return complete, now

    async def _stop_when_over(self, run: str, reading: anyio.CancelScope) -> None:
        async for record in self._runs.bus.records(f"runs.{token(run, 'run')}"):
            info = RUNS.read(record)
            if info is not None and info.state != "active":
                break
        # The rest of the rows would be published one by one, and each cancelled; of a stream without an end.
        if self._publishing is not None:
            self._publishing.cancel()
        self._over()
        # Rollouts in flight may still give results; reading ends when none has arrived for a while.
        while True:
            await anyio.sleep(CANCEL_GRACE_S / 4)
            if self._silent(CANCEL_GRACE_S):
                reading.cancel()

    # -- settle ---------------------------------------------------------------------------------------

    async def _arrived(self, stored: StoredResult, tasks: TaskGroup, *, shed: bool) -> None:
        record, before = stored.record, self._handed_over // SHED
        if record.left_out is not None:
            raise UsageError(
                f"the results of run '{record.run}' lack the inputs of long rows, which only the client has "
                "that began it and writes its files; if it died, 'gym-runtime run --resume' on these files "
                "goes on with what is stored"
            )
        if not stored.readable:
            self._comparisons.lose(record)
        if stored.readable and record.group is None and not is_comparison(record.rollout_index):
            await self._hand_over(record)
        else:
            await self._settle(record, tasks)
        self._sweep(record, tasks)
        if shed and self._handed_over // SHED > before:
            if self._shed_before:
                # Up to the previous mark, so that at least `SHED` records stay.
                forget = partial(self._runs.bus.forget, before=self._shed_before)
                tasks.start_soon(forget, f"rollout.{token(record.run, 'run')}.>")
            self._shed_before = stored.sequence

    async def _settle(self, record: RolloutRecord, tasks: TaskGroup) -> None:
        """Take in a record of a group, or of a comparison, and act on it."""
        window = self._window
        if record.waiting is not None and window is not None:
            window.release(record)
        for ready in self._comparisons.take(record):
            if isinstance(ready, RolloutSpec):
                tasks.start_soon(self._compare, ready)
                back = [(ready.task_index, candidate.rollout_index) for candidate in ready.candidates]
            else:
                waited = ready is not record and not is_comparison(record.rollout_index)
                back = [(ready.task_index, ready.rollout_index)] if waited else []
            if window is not None:
                # Places are taken back before the record is handed over, which gives them up again.
                for key in back:
                    window.take_again(*key)
            if isinstance(ready, RolloutRecord):
                await self._hand_over(ready)

    async def _hand_over(self, record: RolloutRecord) -> None:
        if self._settled is not None and self._settled(record.task_index, record.rollout_index):
            return
        self.counter.add(record)
        self._runs.alarms.take(record)
        self._some_cancelled |= isinstance(record.outcome, Cancelled)
        taken = self._take(record)
        if taken is not None:
            await taken
        self._handed_over += 1

    async def _compare(self, task: RolloutSpec) -> None:
        """Publish the comparison of a group, unless it is queued or has a result."""
        if not await self._runs.bus.latest(f"rollout.{rollout_token(task.rollout_id)}"):
            await self._runs.publish_once(task)

    def _sweep(self, record: RolloutRecord, tasks: TaskGroup) -> None:
        """Delete the journals that no rollout needs after this record."""
        # A client that has published nothing of a run has no sweep for it.
        sweep = self._runs.sweeps.get(record.run)
        if sweep is None or (self._settled and self._settled(record.task_index, record.rollout_index)):
            return
        if is_comparison(record.rollout_index):
            done = [f"{journal_subject(record.run, record.task_index, record.rollout_index)}.>"]
        else:
            done = sweep.committed(record.task_index)
        for pattern in done:
            tasks.start_soon(self._runs.bus.forget, pattern)


def _keep_nothing(record: RolloutRecord) -> None:
    pass


def run_rollouts(
    runs: Runs,
    specs: Iterable[RolloutSpec],
    info: RunInfo,
    *,
    in_flight: int = IN_FLIGHT,
    remains: Remains | None = None,
    settled: Settled | None = None,
    keeping: AbstractAsyncContextManager[Keep] | None = None,
    restored: Restored | None = None,
    over: Callable[[RunInfo], None] = lambda _: None,
) -> AsyncGenerator[RolloutRecord]:
    """Run rollouts; yields the record of each one once, in the order of completion.

    ``specs`` is read as places become free. Leaving early cancels what is left.

    Args:
        in_flight: rollouts published and not yet yielded, at most.
        remains: what a client of this run that died has left (`take_up`); its results are yielded too.
        settled: rollouts that are not among ``specs``, because an earlier part of the run has run them; by
            default those of ``remains``.
        keeping: lasts as long as the run's work; gets each record before it is yielded.
        restored: puts back what results lack because the client has the rows.
        over: called when the run is over, unless it is left early, with what is known of it then.
    """
    stream = ResultStream[RolloutRecord]()
    had = remains.results if remains is not None else KeyCounts()
    window = Window(in_flight, without=had)
    if remains is not None:
        info = replace(info, created_s=remains.created_s)
        settled = settled or remains.settled

    async def work() -> None:
        async with keeping or nullcontext(_keep_nothing) as keep:

            def take(record: RolloutRecord) -> Awaitable[None]:
                keep(record)
                return stream.send(record)

            run = Run(
                runs,
                info,
                take,
                more=len(had),
                window=window,
                settled=settled,
                counter=remains and remains.counted,
                restored=restored,
            )
            await run.drive(specs)
            over(run.info)

    # Released before the record is yielded: the next rollout starts while the caller works on this one.
    return stream.results(runs.tasks, work, window.release)


async def collect(runs: Runs, run: str) -> AsyncGenerator[RolloutRecord]:
    """The records of a run that was published elsewhere, until it is finished or cancelled.

    They stay at the broker until `Runs.finish_run`; the last client that follows the run then frees them.

    Raises:
        UsageError: there is no such run, or it is over and some of its records are no longer stored.
    """
    info = await runs.stored_run(run)
    stream = ResultStream[RolloutRecord]()
    followed = Run(runs, info, stream.send, total=info.total, counter=Counter(repeats=info.repeats))

    async def work() -> None:
        runs.tasks.start_soon(runs.tidy)
        complete, now = await followed.follow_to_end()
        if complete:
            runs.counted[run] = followed.counter
        if now.state != "active" and not now.closed:
            await runs.finish_run(now, state=now.state)

    async with aclosing(stream.results(runs.tasks, work)) as records:
        async for record in records:
            yield record
