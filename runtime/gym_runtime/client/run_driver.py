"""Whole runs: publish rollouts, follow their records, and be there while they are worked on.

Each of the modules `runs`, `publishing`, `following` and this one builds on the one before.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import anyio
import msgspec

from gym_runtime import clock
from gym_runtime.client.following import Following
from gym_runtime.client.progress import Counter
from gym_runtime.client.recovery import Remains, take_up
from gym_runtime.client.streaming import ResultStream, background
from gym_runtime.client.window import Window
from gym_runtime.errors import GymError
from gym_runtime.files.keys import KeyCounts
from gym_runtime.files.resume import Progress
from gym_runtime.messages.names import token
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_info import RunInfo
from gym_runtime.rollout.comparisons import Comparisons
from gym_runtime.rpc.members import Heartbeat, announce

TIDIED_S = 60.0
"""How often a client that begins one run after the other looks for what others have left. It looks at every
run that the broker remembers, which costs as much as several rollouts."""


IN_FLIGHT = 4096
T = TypeVar("T")
Keep = Callable[[RolloutRecord], None]


def _keep_nothing(record: RolloutRecord) -> None:
    pass


class AttachedRun(msgspec.Struct):
    """A run whose client is connected.

    Attributes:
        run: what others are told of it.
        records: those that the client has had, counted.
        finished: the client has had all of its records.
    """

    run: RunInfo
    records: Counter
    finished: bool = False

    @property
    def summary(self) -> RunInfo:
        """What others are told of the run when it is over."""
        return self.records.told(self.run)


class RunDriver(Following):
    """Runs between one client and the workers: a `Client` is built on it, and some commands use it."""

    _tidied_s: float | None = None

    @asynccontextmanager
    async def attach(self, run: RunInfo, counter: Counter | None = None) -> AsyncGenerator[AttachedRun]:
        """Open a run that is worked on while this context lasts; at its end the run is over, however it ends.

        ``attached`` tasks stop when this client disappears.
        """
        run = msgspec.structs.replace(run, attached=True)
        attached = AttachedRun(run, records=counter or Counter(run.created_s))
        member = Heartbeat(
            worker=token(run.run, "run"), kind="client", pools=[], host=socket.gethostname(), pid=os.getpid()
        )

        def current() -> Heartbeat:
            records = attached.records
            return msgspec.structs.replace(
                member, started_s=records.started_s, detail=records.detail(), figures=records.figures()
            )

        # A scope of its own: the task belongs to the connection, which outlives the run.
        ready, here = anyio.Event(), anyio.CancelScope()

        async def be_there() -> None:
            with here:
                await announce(self.bus, current, ready=ready.set)

        self.tasks.start_soon(be_there)
        try:
            # Announced before any task can come: agent workers look whether the client is there.
            await ready.wait()
            await self.open_run(run)
            self.tasks.start_soon(self._tidy)
            yield attached
        finally:
            # The error that ended the run is what the caller must see, not a failure to close the run.
            with anyio.move_on_after(5, shield=True), suppress(GymError):
                await self.close_run(attached.summary, state="finished" if attached.finished else "cancelled")
            # Last: a client that is gone before its run is closed would have its tasks given back, not ended.
            here.cancel()

    async def _tidy(self) -> None:
        now_s, looked_s = clock.monotonic(), self._tidied_s
        if looked_s is not None and now_s < looked_s + TIDIED_S:
            return
        self._tidied_s = now_s
        # Nothing waits for it, and the next client tries again.
        with suppress(GymError):
            await self.close_abandoned(looked_s=math.inf if looked_s is None else looked_s)

    async def make(
        self,
        specs: Iterable[RolloutSpec],
        run: RunInfo,
        *,
        in_flight: int = IN_FLIGHT,
        remains: Remains | None = None,
        settled: Callable[[int, int], bool] | None = None,
        keeping: AbstractAsyncContextManager[Keep] | None = None,
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
            keeping: lasts as long as the run's work; gets each record before it is yielded.
        """
        stream = ResultStream[RolloutRecord]()
        left = remains or Remains(KeyCounts(), KeyCounts())
        window = Window(in_flight, without=left.results)
        comparisons = Comparisons(settled or left.settled, resumed=remains is not None)
        if remains is not None:
            run = msgspec.structs.replace(run, created_s=remains.created_s)

        async def work() -> None:
            more = partial(len, left.results)
            async with keeping or nullcontext(_keep_nothing) as keep:

                def take(record: RolloutRecord) -> Awaitable[None]:
                    keep(record)
                    return stream.send(record)

                await self.drive(
                    specs,
                    run,
                    window,
                    take,
                    comparisons=comparisons,
                    more=more,
                    skip=left.settled,
                    counter=remains and remains.counted,
                )

        async with aclosing(self.yielded(work, stream)) as records:
            async for record in records:
                # Before the yield: the next rollout starts while the caller works on this one.
                window.release(record)
                yield record

    async def drive(
        self,
        specs: Iterable[RolloutSpec],
        run: RunInfo,
        window: Window,
        take: Callable[[RolloutRecord], Awaitable[None]],
        *,
        comparisons: Comparisons,
        more: Callable[[], int] = lambda: 0,
        skip: Callable[[int, int], bool] | None = None,
        counter: Counter | None = None,
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

        # In this order: publishing has ended before the run is closed.
        async with self.attach(run, counter) as attached, background() as tasks:

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
            now = await self.known(info)
            if not complete and now.state == "finished":
                # For its error: another client had all records and freed them before this one came to them.
                await self.stored_run(run)
            if complete:
                self._counted[run] = counted
            if now.state != "active" and not now.closed:
                await self.finish_run(now, state=now.state)

        async with aclosing(self.yielded(work, stream)) as records:
            async for record in records:
                yield record

    async def yielded(
        self, work: Callable[[], Coroutine[Any, Any, None]], stream: ResultStream[T]
    ) -> AsyncGenerator[T]:
        # The work is a task of the connection, not of a generator: a generator may be dropped half-way,
        # in another task than it began in, and must not own a task group.
        self.tasks.start_soon(stream.fill, work)
        try:
            async for record in stream.received():
                yield record
        finally:
            stream.close()
