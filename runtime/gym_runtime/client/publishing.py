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
import msgspec
from anyio.abc import TaskGroup

from gym_runtime import tracing
from gym_runtime.bus.crew import Crew
from gym_runtime.bus.interface import Bus, Headers
from gym_runtime.client.following import Following, queue_of
from gym_runtime.client.progress import Counter
from gym_runtime.client.recovery import Remains, take_up
from gym_runtime.client.streaming import ResultStream, background
from gym_runtime.client.window import Window
from gym_runtime.errors import BrokerError, GymError, UsageError
from gym_runtime.files.keys import KeyCounts
from gym_runtime.files.resume import Progress
from gym_runtime.logs import logger
from gym_runtime.messages.names import token
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec, encode_spec
from gym_runtime.messages.run_info import RunInfo
from gym_runtime.rollout.comparisons import Comparisons
from gym_runtime.rpc.announcing import announce
from gym_runtime.rpc.registry import Heartbeat

IN_FLIGHT = 4096
PUBLISHERS = 64
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
        return self.records.told(self.run)


class Flow(Following):
    """What passes between one client and the workers. ``tasks`` outlives every run that is begun here."""

    def __init__(self, bus: Bus | None = None, tasks: TaskGroup | None = None) -> None:
        super().__init__(bus)
        self._background = tasks
        self._queues: set[str] = set()

    @property
    def _tasks(self) -> TaskGroup:
        if self._background is None:
            raise UsageError("the client is not open: async with connect(...) as gym, or await gym.open()")
        return self._background

    async def publish(self, tasks: Iterable[RolloutSpec], *, window: Window | None = None) -> int:
        """Put rollouts on the queue; returns how many. With ``window`` each takes one place first.

        Raises:
            UsageError: the name of a run, an agent, an environment or a model cannot be one.
        """
        limit = anyio.Semaphore(PUBLISHERS, fast_acquire=True)
        count = 0
        inherited = tracing.inherited()

        async def one(task: RolloutSpec) -> None:
            try:
                await self._enqueue(task, inherited)
            finally:
                limit.release()

        async with background(cancel=False) as group:
            crew = Crew(group)
            for task in tasks:
                if task.agent not in self._queues:
                    await self._open_queue(task.agent)
                if window is not None:
                    await window.take()
                await limit.acquire()
                self._note_journal(task)
                crew.start_soon(one, task)
                count += 1
            crew.close()
        return count

    async def publish_one(self, task: RolloutSpec) -> None:
        """As `publish`, for a caller who waits for this rollout anyway.

        Raises:
            UsageError: as `publish`.
        """
        self._note_journal(task)
        await self._enqueue(task)

    async def _enqueue(self, task: RolloutSpec, inherited: Headers | None = None) -> None:
        await self.bus.enqueue(queue_of(task), encode_spec(task), headers=tracing.headers() or inherited)

    def _note_journal(self, task: RolloutSpec) -> None:
        if task.durability == "turn":
            self._sweep(task.run).published(task.task_index)

    async def _open_queue(self, agent: str) -> None:
        """Make an agent's queue, so that an autoscaler sees what waits before the first worker is there."""
        self._queues.add(agent)
        name = token(agent, "agent")
        try:
            await self.bus.open_queue(f"task.{name}.>", consumer=f"agent-{name}")
        except BrokerError as error:
            logger().info("a queue is left to its first worker", agent=agent, reason=str(error))

    @asynccontextmanager
    async def attach(self, run: RunInfo) -> AsyncGenerator[AttachedRun]:
        """Open a run that is worked on while this context lasts; at its end the run is over, however it ends.

        ``attached`` tasks stop when this client disappears.
        """
        run = msgspec.structs.replace(run, attached=True)
        attached = AttachedRun(run)
        member = Heartbeat(
            worker=token(run.run, "run"), kind="client", pools=[], host=socket.gethostname(), pid=os.getpid()
        )

        def current() -> Heartbeat:
            records = attached.records
            return msgspec.structs.replace(
                member, started_s=records.started_s, detail=records.detail(), figures=records.figures()
            )

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
        settled: Callable[[int, int], bool] | None = None,
    ) -> AsyncGenerator[RolloutRecord]:
        """Run rollouts; yields the record of each one once, in the order of completion.

        ``specs`` is read as places become free, so memory does not grow with the run. Leaving early cancels
        what is left.

        Args:
            run: what others are told of the run. A ``total`` of 0 means that it is not known: it is counted,
                and told when the last rollout is published.
            in_flight: rollouts published and not yet yielded, at most.
            remains: what a client of this run that died has left (`take_up`); its results are yielded too.
            settled: whether a rollout, by its task's and its own index, is not among ``specs`` because an
                earlier part of the run has made it; its group does not wait for it.
        """
        stream = ResultStream[RolloutRecord]()
        left = remains or Remains(KeyCounts(), KeyCounts())
        window = Window(in_flight, without=left.results)
        comparisons = Comparisons(settled or left.settled, resumed=remains is not None)

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

    async def collect(self, run: str) -> AsyncGenerator[RolloutRecord]:
        """The records of a run that was published elsewhere, until it is finished or cancelled.

        They stay at the broker until `finish_run`; the last client that follows the run then frees them.

        Raises:
            UsageError: there is no such run, or it is over and not all of its records are stored any more.
        """
        info = await self.stored_run(run)
        stream = ResultStream[RolloutRecord]()
        counted = Counter()

        def take(record: RolloutRecord) -> Awaitable[None]:
            counted.add(record)
            return stream.send(record)

        async def work() -> None:
            complete = await self.follow(run, info.total, take)
            now = await self.run(run)
            if not complete and now.state == "finished":
                await self.stored_run(run)
            if complete:
                self._counted[run] = counted
            if now.state != "active" and not now.closed:
                await self.finish_run(now, state=now.state)

        async with aclosing(self._yielded(work, stream)) as records:
            async for record in records:
                yield record

    async def _yielded(
        self, work: Callable[[], Coroutine[Any, Any, None]], stream: ResultStream[T]
    ) -> AsyncGenerator[T]:
        # The work is a task of the connection, not of a generator: a generator may be dropped half-way,
        # in another task than it began in, and must not own a task group.
        self._tasks.start_soon(stream.fill, work)
        try:
            async for record in stream.received():
                yield record
        finally:
            stream.close()
