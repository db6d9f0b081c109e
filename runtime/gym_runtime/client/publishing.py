"""Rollouts out, records in: publish tasks, follow a run's records, and be there while it is worked on."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup

from gym_runtime import tracing
from gym_runtime.bus.interface import Bus
from gym_runtime.client.background import Stream, background
from gym_runtime.client.progress import Counter
from gym_runtime.client.recovery import Remains, take_up
from gym_runtime.client.runs import Runs
from gym_runtime.client.window import Window
from gym_runtime.errors import GymError
from gym_runtime.files.keys import KeyCounts
from gym_runtime.files.resume import Progress
from gym_runtime.messages.comparison import is_comparison
from gym_runtime.messages.names import rollout_token, token
from gym_runtime.messages.outcomes import RolloutRecord, decode_record
from gym_runtime.messages.rollout_spec import RolloutSpec, encode_spec
from gym_runtime.messages.run_info import RunInfo, decode_run
from gym_runtime.rollout.comparisons import Comparisons
from gym_runtime.rollout.journal import journal_subject
from gym_runtime.rpc.announcing import announce
from gym_runtime.rpc.registry import Heartbeat

IN_FLIGHT = 4096
PUBLISHERS = 64
CANCEL_GRACE_S = 2.0
SHED = 10_000
"""Of a run's records that the client has had, so many at least stay at the broker, to refuse second ones."""
T = TypeVar("T")


class AttachedRun(msgspec.Struct):
    """A run whose client is connected.

    Attributes:
        run: what others are told of it.
        finished: the client has had all of its records.
        records: those that the client has had, counted.
    """

    run: RunInfo
    finished: bool = False
    records: Counter = msgspec.field(default_factory=Counter)

    @property
    def summary(self) -> RunInfo:
        """What others are told of the run when it is over."""
        return msgspec.structs.replace(self.run, done=self.records.done, failed=self.records.failed)


class Flow(Runs):
    """What passes between one client and the workers. ``tasks`` outlives whatever is begun here."""

    def __init__(self, bus: Bus, tasks: TaskGroup) -> None:
        super().__init__(bus)
        self._tasks = tasks

    async def publish(self, tasks: Iterable[RolloutSpec], *, window: Window | None = None) -> int:
        """Put rollouts on the queue; returns how many. With ``window`` each takes a place first.

        Raises:
            UsageError: the name of a run, an agent, an environment or a model cannot be one.
        """
        limit = anyio.CapacityLimiter(PUBLISHERS)
        count = 0

        async def one(task: RolloutSpec) -> None:
            async with limit:
                await self.bus.enqueue(_queue(task), encode_spec(task), headers=tracing.headers())

        async with background(cancel=False) as group:
            for task in tasks:
                if window is not None:
                    await window.acquire()
                elif limit.borrowed_tokens >= PUBLISHERS:
                    async with limit:
                        pass
                if task.durability == "turn":
                    self._sweep(task.run).published(task.task_index)
                group.start_soon(one, task)
                count += 1
                if count % PUBLISHERS == 0:
                    await anyio.lowlevel.checkpoint()
        return count

    @asynccontextmanager
    async def attach(self, run: RunInfo) -> AsyncGenerator[AttachedRun]:
        """Open a run that is worked on while this context lasts; at its end the run is over, however it ends.

        Tasks that are ``attached`` stop when this client is gone.
        """
        run = msgspec.structs.replace(run, attached=True)
        attached = AttachedRun(run)
        member = Heartbeat(
            worker=token(run.run, "run"), kind="client", pools=[], host=socket.gethostname(), pid=os.getpid()
        )

        def current() -> Heartbeat:
            return msgspec.structs.replace(member, detail=attached.records.detail())

        ready, here = anyio.Event(), anyio.CancelScope()

        async def be_there() -> None:
            with here:
                await announce(self.bus, current, ready=ready.set)

        self._tasks.start_soon(be_there)
        try:
            await ready.wait()
            await self.open_run(run)
            self._tasks.start_soon(self._tidy)
            yield attached
        finally:
            # The error that ended the run is what the caller must see, not a failure to close the run.
            with anyio.move_on_after(5, shield=True), suppress(GymError):
                await self.close_run(attached.summary, state="finished" if attached.finished else "cancelled")
            here.cancel()

    async def _tidy(self) -> None:
        # Nothing waits for it, and the next client tries again.
        with suppress(GymError):
            await self.close_abandoned()

    async def make(
        self,
        specs: Iterable[RolloutSpec],
        run: RunInfo,
        *,
        in_flight: int = IN_FLIGHT,
        remains: Remains | None = None,
    ) -> AsyncGenerator[RolloutRecord]:
        """Have rollouts made; yields each one's record once, in the order of completion.

        ``specs`` is read as places become free, so memory does not grow with the run. Leaving early cancels
        what is left.

        Args:
            run: what others are told of the run. A ``total`` of 0 means that it is not known: it is counted,
                and told when the last rollout is published.
            in_flight: rollouts published and not yet yielded, at most.
            remains: what a client of this run that died has left (`take_up`); its results are yielded too.
        """
        stream = Stream[RolloutRecord]()
        left = remains or Remains(KeyCounts(), KeyCounts())
        window = Window(in_flight, without=left.results)
        comparisons = Comparisons(left.settled, resumed=remains is not None)

        async def work() -> None:
            more = partial(len, left.results)
            await self._drive(
                specs, run, window, stream.send, comparisons=comparisons, more=more, skip=left.settled
            )

        async with aclosing(self._yielded(work, stream)) as records:
            async for record in records:
                window.release(record)
                yield record

    async def _drive(
        self,
        specs: Iterable[RolloutSpec],
        run: RunInfo,
        window: Window,
        take: Callable[[RolloutRecord], Awaitable[None]],
        *,
        comparisons: Comparisons,
        more: Callable[[], int] = lambda: 0,
        skip: Callable[[int, int], bool] | None = None,
    ) -> None:
        """Publish a run and pass its records on; the run is over however this ends.

        ``more`` counts the records to come besides those of ``specs``; the others are for `follow`.
        """
        published: list[int] = []
        all_published = anyio.Event()

        async def publish(attached: AttachedRun) -> None:
            published.append(await self.publish(specs, window=window))
            if not run.total:
                attached.run = msgspec.structs.replace(run, total=published[0])
                await self.open_run(attached.run)
            all_published.set()

        def total() -> float:
            return published[0] + more() if published else math.inf

        async with self.attach(run) as attached, background() as tasks:

            def counted(record: RolloutRecord) -> Awaitable[None]:
                attached.records.add(record)
                return take(record)

            tasks.start_soon(publish, attached)
            attached.finished = await self.follow(
                run.run,
                total,
                counted,
                shed=True,
                recount=all_published,
                skip=skip,
                comparisons=comparisons,
                window=window,
            )

    async def take_up(self, run: str, progress: Progress) -> Remains | None:
        """What a run whose client died has left here, if it is to be gone on with; else None.

        Raises:
            UsageError: its client is alive.
        """
        remains = await take_up(self.bus, run, progress)
        if remains is not None:
            for (task_index, _), _ in remains.results.items():
                self._sweep(run).expected(task_index)
        return remains

    async def follow(
        self,
        run: str,
        total: int | Callable[[], float],
        take: Callable[[RolloutRecord], Awaitable[None] | None],
        *,
        shed: bool = False,
        recount: anyio.Event | None = None,
        skip: Callable[[int, int], bool] | None = None,
        comparisons: Comparisons | None = None,
        window: Window | None = None,
    ) -> bool:
        """Hand over a run's records as they are committed, each once, until there are ``total``.

        Records that wait for the comparison of their group are handed over together, with their rewards, once
        it is there. When their group is complete, this publishes it.

        ``total`` may be a function where it is not known yet, or where ``take`` leads to more of them; it is
        looked at again when ``recount`` is set. With ``shed`` the broker forgets what was handed over long
        ago, so that a long run needs no more of its memory and disk than a short one; no other client can
        collect all of the run then. ``skip`` says of a task's and a rollout's index that its record was had
        before; it is not handed over and does not count. The places of ``window`` are for others while a
        record waits.

        Returns False if the run is over without that: it was cancelled, and what was in flight then is
        handed over too; or somebody else had all records and freed them.
        """
        run = token(run, "run")
        expected = total if callable(total) else lambda: float(total)
        comparisons = comparisons or Comparisons(skip, resumed=skip is not None)
        count = 0
        had = KeyCounts()
        mark = 0
        waiting_since_s = math.inf

        async def stop_when_over(scope: anyio.CancelScope) -> None:
            async for record in self.bus.records(f"runs.{run}"):
                if decode_run(record.payload).state != "active":
                    break
            while True:
                await anyio.sleep(CANCEL_GRACE_S / 4)
                if anyio.current_time() >= waiting_since_s + CANCEL_GRACE_S:
                    scope.cancel()

        async def stop_when_complete(scope: anyio.CancelScope, recount: anyio.Event) -> None:
            await recount.wait()
            if count >= expected():
                scope.cancel()

        async def hand_over(record: RolloutRecord) -> None:
            nonlocal count
            if skip is None or not skip(record.task_index, record.rollout_index):
                taken = take(record)
                if taken is not None:
                    await taken
                count += 1

        async with self.followed(run), background() as tasks:
            tasks.start_soon(stop_when_over, tasks.cancel_scope)
            if recount is not None:
                tasks.start_soon(stop_when_complete, tasks.cancel_scope, recount)
            if count < expected():
                waiting_since_s = anyio.current_time()
                async for stored in self.bus.records(f"rollout.{run}.>"):
                    waiting_since_s = math.inf
                    record = decode_record(stored.payload)
                    # An attempt may be so late that the broker has shed the record of the one before.
                    if had.increase(record.task_index, record.rollout_index) == 1:
                        before = count // SHED
                        if record.group is None and not is_comparison(record.rollout_index):
                            await hand_over(record)
                        else:
                            await self._settle(record, comparisons, hand_over, window, tasks)
                        self._sweep_up(record, tasks, skip)
                        if shed and count // SHED > before:
                            if mark:
                                tasks.start_soon(partial(self.bus.forget, f"rollout.{run}.>", before=mark))
                            mark = stored.sequence
                    if count >= expected():
                        break
                    waiting_since_s = anyio.current_time()
        if count < expected() and (await self.run(run)).state == "cancelled":
            for record in comparisons.rest():
                await hand_over(record)
        return count >= expected()

    async def _settle(
        self,
        record: RolloutRecord,
        comparisons: Comparisons,
        hand_over: Callable[[RolloutRecord], Awaitable[None]],
        window: Window | None,
        tasks: TaskGroup,
    ) -> None:
        """Take in a record of a group, or of a comparison, and do what follows from it."""
        if record.waiting is not None and window is not None:
            window.release(record)
        for ready in comparisons.take(record):
            if isinstance(ready, RolloutSpec):
                tasks.start_soon(self._compare, ready)
                back = [(ready.task_index, candidate.rollout_index) for candidate in ready.candidates]
            else:
                waited = ready is not record and not is_comparison(record.rollout_index)
                back = [(ready.task_index, ready.rollout_index)] if waited else []
            if window is not None:
                for key in back:
                    window.take_again(*key)
            if isinstance(ready, RolloutRecord):
                await hand_over(ready)

    async def _compare(self, task: RolloutSpec) -> None:
        """Publish the comparison of a group, unless it is being made or has a result."""
        if await self.bus.latest(f"rollout.{rollout_token(task.rollout_id)}"):
            return
        # A subject of its own, by which the broker knows that it is queued already.
        subject = f"{_queue(task)}.{task.task_index}.{task.rollout_index}"
        await self.bus.enqueue(subject, encode_spec(task), headers=tracing.headers(), once=True)

    def _sweep_up(
        self, record: RolloutRecord, tasks: TaskGroup, skip: Callable[[int, int], bool] | None
    ) -> None:
        """Forget the journals that this record was the last to need."""
        sweep = self._sweeps.get(record.run)
        if sweep is None or (skip is not None and skip(record.task_index, record.rollout_index)):
            return
        if is_comparison(record.rollout_index):
            done = f"{journal_subject(record.run, record.task_index, record.rollout_index)}.>"
        else:
            done = sweep.committed(record.task_index)
        if done is not None:
            tasks.start_soon(self.bus.forget, done)

    async def collect(self, run: str) -> AsyncGenerator[RolloutRecord]:
        """The records of a run that was published elsewhere, until it is finished or cancelled.

        They stay at the broker until `finish_run`; the last client that follows the run then frees them.

        Raises:
            UsageError: there is no such run, or it is over and not all of its records are stored any more.
        """
        info = await self.stored_run(run)
        stream = Stream[RolloutRecord]()

        async def work() -> None:
            complete = await self.follow(run, info.total, stream.send)
            now = await self.run(run)
            if not complete and now.state == "finished":
                await self.stored_run(run)
            if now.state != "active" and not now.closed:
                await self.finish_run(now, state=now.state)

        async with aclosing(self._yielded(work, stream)) as records:
            async for record in records:
                yield record

    async def _yielded(
        self, work: Callable[[], Coroutine[Any, Any, None]], stream: Stream[T]
    ) -> AsyncGenerator[T]:
        # The work is a task of the connection, not of a generator: a generator may be dropped half-way,
        # in another task than it began in, and must not own a task group.
        self._tasks.start_soon(stream.fill, work)
        try:
            async for record in stream.received():
                yield record
        finally:
            stream.close()


def _queue(task: RolloutSpec) -> str:
    """The subject under which a rollout waits for its agent."""
    token(task.model, "model")
    agent, environment = token(task.agent, "agent"), token(task.environment, "environment")
    return f"task.{agent}.{environment}.{token(task.run, 'run')}"
