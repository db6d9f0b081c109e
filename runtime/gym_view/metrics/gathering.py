"""The figures of a system: what its workers and the clients of its runs have counted, summed.

Counters never go down while this observes: a worker that is gone keeps its part. What a killed worker had
counted since it was last asked is lost, but for rollouts: these are counted by the client that receives each
result once. A run that is over left its figures with the broker; those of a published run, which has no
client yet, are counted here from its records.
"""

from __future__ import annotations

import math
from contextlib import suppress

import anyio
from anyio.abc import TaskGroup
from gym_runtime.bus import Bus, Incoming
from gym_runtime.client import Counter, queues, read_controls, stored_results
from gym_runtime.errors import BrokerError, GymError
from gym_runtime.logs import logger
from gym_runtime.messages import RUNS, Count, Figures, Metric, is_comparison, merged, metric_names
from gym_runtime.rpc import HEARTBEATS, Heartbeat, all_workers, fresh
from gym_runtime.training import RunInfo
from msgspec.structs import replace

GATHER_S = 2.0
"""How often the workers' figures are gathered."""
FORGOTTEN_S = 600.0
"""A worker that has been silent for so long is added to those that are gone, and only its name is kept."""
CLOSED_TWICE = 1024
"""Two collectors may close a run, one soon after the other: the names of so many are kept."""
OUTAGE_S = 30.0
"""If no worker could be asked for so long, the broker was away, and this time is no worker's silence."""

STATES = ("serving", "draining", "paused", "only_errors")
SEVERAL = "several"
"""The pool of a worker that serves more than one."""

Origin = tuple[str, float]
"""A member's name, and when it began to count: a worker that is started again may have the same name."""


class SystemFigures:
    """Follows one system.

    Attributes:
        looked_s: when every worker was last asked, in the event loop's time; minus infinity before.
    """

    def __init__(self, bus: Bus) -> None:
        self.looked_s = -math.inf
        self._bus = bus
        self._counted: dict[Origin, Figures] = {}
        self._heard_s: dict[Origin, float] = {}
        self._gone: Figures = Figures()
        self._folded: set[Origin] = set()
        self._present: list[Heartbeat] = []
        self._paused: set[str] = set()
        self._queues: list[Count] = []
        self._runs: dict[str, _Run] = {}
        self._closed: dict[str, None] = {}

    async def follow(self) -> None:
        """Keep the figures current until cancelled. What cannot be read is logged, and raises nothing."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hear_last_words)
            tasks.start_soon(self._follow_runs, tasks)
            while True:
                try:
                    await self.look()
                except GymError as error:
                    logger().warning("the figures are not current", error=str(error))
                await anyio.sleep(GATHER_S)

    async def look(self) -> None:
        """Ask every worker and every client of a run.

        Raises:
            GymError: the broker is not reachable.
        """
        workers = await fresh(self._bus, await all_workers(self._bus))
        attached = [run.info for run in self._runs.values() if run.info.attached and run.active]
        clients = [Heartbeat(worker=info.run, kind="client", pools=[]) for info in attached]
        for client in await fresh(self._bus, clients):
            if (run := self._runs.get(client.worker)) is not None:  # else it was closed meanwhile
                run.learn(client.figures)
        for worker in workers:
            self._learn(worker)
        self._present = workers
        self._paused = {run for run, control in (await read_controls(self._bus)).items() if control.paused}
        depths = await queues(self._bus, workers, [run.info for run in self._runs.values()])
        self._queues = [
            Count(metric_names.QUEUE.name, (agent, state), count)
            for agent, depth in depths.items()
            for state, count in (("waiting", depth.waiting), ("in_flight", depth.in_flight))
        ]
        self._fold()

    def figures(self) -> Figures:
        """Everything, gauges included, as of the last look."""
        counted = merged(
            [self._gone, *self._counted.values(), *(run.figures() for run in self._runs.values())]
        )
        # The processes' own figures are in counters by kind.
        return replace(
            counted, counts=[*counted.counts, *self._gauges(), *self._queues], cpu_s=0.0, memory_bytes=0
        )

    # -- workers ----------------------------------------------------------------------------------------

    def _learn(self, worker: Heartbeat) -> None:
        figures = worker.figures
        origin = (worker.name, worker.started_s)
        # What was folded cannot be replaced any more, and would count twice.
        if figures is None or origin in self._folded:
            return
        known = self._counted.get(origin)
        # Processor time never goes down, so it tells the order of two answers.
        if known is not None and known.cpu_s > figures.cpu_s:
            return  # an answer that was overtaken by a later one
        cpu = Count(metric_names.CPU_TIME.name, (worker.kind,), figures.cpu_s)
        self._counted[origin] = replace(figures, counts=[*figures.counts, cpu])
        self._heard_s[origin] = anyio.current_time()

    async def _hear_last_words(self) -> None:
        """A worker that leaves in order tells what it has counted at last."""

        def gone(incoming: Incoming) -> None:
            if incoming.payload:
                heartbeat = HEARTBEATS.read(incoming)
                if heartbeat is None:
                    return
                if heartbeat.kind != "client":
                    self._learn(heartbeat)
                elif (run := self._runs.get(heartbeat.worker)) is not None:
                    run.learn(heartbeat.figures)

        try:
            async with self._bus.serve("gone.>", gone):
                await anyio.sleep_forever()
        except BrokerError as error:
            logger().warning("what a leaving worker counts at last is not heard", error=str(error))

    def _fold(self) -> None:
        now_s = anyio.current_time()
        if OUTAGE_S < (away_s := now_s - self.looked_s) < math.inf:
            self._heard_s = {origin: min(now_s, at_s + away_s) for origin, at_s in self._heard_s.items()}
        self.looked_s = now_s
        old = [origin for origin, heard_s in self._heard_s.items() if heard_s < now_s - FORGOTTEN_S]
        for origin in old:
            self._gone = merged([self._gone, self._counted.pop(origin)])
            self._folded.add(origin)
            del self._heard_s[origin]

    def _gauges(self) -> list[Count]:
        values: dict[tuple[str, tuple[str, ...]], float] = {}

        def add(metric: Metric, *labels: str, by: float = 1) -> None:
            values[metric.name, labels] = values.get((metric.name, labels), 0) + by

        # So that the series is there before the first one stalls.
        add(metric_names.STALLED, by=0)
        add(metric_names.REFUSED_STORES, by=0)
        for worker in self._present:
            kind = worker.kind
            pool = worker.pools[0] if len(worker.pools) == 1 else SEVERAL
            state = _state(worker)
            for one in STATES:  # a series that comes and goes with its state cannot be alerted on
                add(metric_names.WORKERS, kind, pool, one, by=one == state)
            add(metric_names.CAPACITY, kind, pool, by=worker.capacity)
            add(metric_names.IN_USE, kind, pool, by=worker.in_use)
            add(metric_names.REFUSED_STORES, by=bool(worker.refused))
            if worker.figures is not None:
                add(metric_names.MEMORY, kind, by=worker.figures.memory_bytes)
            # A worker of another version may write something else.
            with suppress(ValueError):
                add(metric_names.STALLED, by=int(worker.detail.get("stalled", "0")))
        going_on = [run for run in self._runs.values() if run.goes_on and run.info.run not in self._paused]
        add(metric_names.ACTIVE_RUNS, by=len(going_on))
        return [Count(name, labels, value) for (name, labels), value in values.items()]

    # -- runs -------------------------------------------------------------------------------------------

    async def _follow_runs(self, tasks: TaskGroup) -> None:
        try:
            async for record in self._bus.records("runs.*"):
                info = RUNS.read(record)
                if info is not None:
                    self._note_run(info, tasks)
        except GymError as error:
            logger().warning("rollouts are not counted any more", error=str(error))

    def _note_run(self, info: RunInfo, tasks: TaskGroup) -> None:
        if info.closed and info.run in self._closed:
            return
        run = self._runs.get(info.run)
        if run is None:
            run = self._runs[info.run] = _Run(info)
            if run.active and not info.attached:
                tasks.start_soon(run.count, self._bus)
        run.update(info)
        self._closed.pop(info.run, None)  # a run of the same name was opened again
        if info.closed:
            # Its figures do not change any more, and thousands of runs would each keep some kilobytes.
            self._gone = merged([self._gone, run.figures()])
            del self._runs[info.run]
            self._closed[info.run] = None
            while len(self._closed) > CLOSED_TWICE:
                del self._closed[next(iter(self._closed))]


class _Run:
    """What one run adds."""

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self._clients: dict[float, Figures] = {}
        self._records: Counter | None = None
        self._counting = anyio.CancelScope()

    @property
    def active(self) -> bool:
        return self.info.state == "active"

    @property
    def goes_on(self) -> bool:
        """Whether results are to come; a published run that has all of them waits for its collector only."""
        has_all = self._records is not None and 0 < self.info.total <= self._records.done
        return self.active and not has_all

    def update(self, info: RunInfo) -> None:
        """The stored description has changed."""
        self.info = info
        self.learn(info.figures)
        if not self.active:
            self._counting.cancel()

    def learn(self, figures: Figures | None) -> None:
        """A client of the run has counted this; a client that takes the run up begins from zero."""
        if figures is None:
            return
        known = self._clients.get(figures.since_s)
        # An answer may come after the summary that was stored later.
        if known is None or known.total(metric_names.ROLLOUTS) <= figures.total(metric_names.ROLLOUTS):
            self._clients[figures.since_s] = figures

    def figures(self) -> Figures:
        """All clients of an attached run together. Several collectors of a published one have the same."""
        if self.info.attached:
            return merged(list(self._clients.values()))
        counted = list(self._clients.values())
        if self._records is not None:
            counted.append(self._records.figures())
        return max(counted, key=lambda one: one.total(metric_names.ROLLOUTS), default=Figures())

    async def count(self, bus: Bus) -> None:
        """Count the records of a published run, until it is over."""
        self._records = Counter(repeats=self.info.repeats)
        with self._counting:
            try:
                async for stored in stored_results(bus, self.info.run):
                    if not is_comparison(stored.record.rollout_index):
                        self._records.add(stored.record)
            except GymError as error:
                logger().warning("a run's results are not counted", run=self.info.run, error=str(error))


def _state(worker: Heartbeat) -> str:
    if worker.draining:
        return "draining"
    if worker.detail.get("only_errors"):
        return "only_errors"
    return "paused" if worker.detail.get("paused") else "serving"
