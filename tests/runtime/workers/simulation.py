"""A whole system in virtual time, played from a seed: what befalls it, and what must hold at the end.

A `Plan` is a pure function of its seed: which rollouts, what happens to messages by chance, which worker
or client is struck when. `play` runs it with the real workers and the real client on the in-memory bus.
The same seed leads to the same trace, message by message, so a failing seed can be played again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from hashlib import blake2b

import anyio
import msgspec
from gym_agents.step_loop import Agent as StepLoop
from gym_agents.tool_loop import Agent as ToolLoop
from gym_runtime.client import Client, RunInfo
from gym_runtime.client.run import Run
from gym_runtime.errors import GymError
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_spec import GroupSpan, RolloutSpec, encode_spec
from gym_runtime.rpc.answer import Service
from gym_runtime.rpc.members import Heartbeat, announce
from gym_runtime.timing import SESSIONS_SWEPT_S
from gym_runtime.workers.agent_worker import AgentWorker
from gym_runtime.workers.model_worker import ModelWorker
from gym_runtime.workers.resource_worker import SESSION_KEPT_S, ResourceWorker
from gym_testing import virtual_clock
from gym_testing.background import background, hosting
from gym_testing.memory import Chances, Fate, MemoryBroker, MemoryBus, Passing
from gym_testing.small_system import rollout_spec, row
from runtime.workers.sample_environments import AGENTS, GROUPED, OPEN, SAVED, SIZE, Thinker, environments
from runtime.workers.simulation_plan import Injection, Plan, Victim

LIMIT_S = 15.0
PAUSE_S = 0.5
FLUSH_S = 0.2
ENOUGH_S = 7200.0
"""Longer than all that a rollout may take: attempts, deliveries, retries."""
QUIET_S = LIMIT_S + SESSION_KEPT_S + 3 * SESSIONS_SWEPT_S
"""Longer than any session may live after its last call."""
KINDS = ("task", "rollout", "journal")

Worker = AgentWorker | ResourceWorker | ModelWorker
Key = tuple[int, int]
Slot = tuple[Victim, int]
Event = tuple[float, Passing, Fate]


@contextmanager
def mortal() -> Iterator[None]:
    """Whom the runtime's own errors end, as they end a process."""
    try:
        yield
    except* GymError:
        pass


class Storm:
    """The faults of a plan; it notes all that passes, with its time."""

    def __init__(self, chances: Chances) -> None:
        self.trace: list[Event] = []
        self.over = False
        self._chances = chances

    def fate(self, passing: Passing, dice: random.Random) -> Fate:
        spared = self.over or "watcher" in (passing.sender, passing.receiver)
        fate = Fate() if spared else self._chances.fate(passing, dice)
        self.trace.append((anyio.current_time(), passing, fate))
        return fate


class SimulatedClient:
    """What ``run`` and ``run --resume`` do, without the files: what is flushed survives a crash.

    Attributes:
        disk: the flushed records of each rollout.
        part: how often it was started.
    """

    def __init__(self, broker: MemoryBroker, plan: Plan) -> None:
        self.disk: dict[Key, list[RolloutRecord]] = {}
        self.part = 0
        self._memory: list[RolloutRecord] = []
        self._broker = broker
        self._plan = plan
        self._scope = anyio.CancelScope()
        self._bus: MemoryBus | None = None

    async def run(self) -> None:
        """Parts of the run, until every rollout is on the disk."""
        while len(self.disk) < self._plan.total:
            self.part += 1
            self._memory.clear()
            with anyio.CancelScope() as self._scope, mortal():
                await self._go_on(f"run-{self.part}")

    def kill(self) -> None:
        """As SIGKILL: what is in memory is lost, and nothing that it still says is heard."""
        if self._bus is not None:
            self._bus.cut()
        self._scope.cancel()

    async def _go_on(self, run: str) -> None:
        left = [task for task in self._tasks(run) if not self._settled(task.task_index, task.rollout_index)]
        info = RunInfo(run=run, total=len(left), agents=sorted(set(AGENTS.values())))
        async with self._broker.connect(f"client-{self.part}") as self._bus, hosting() as tasks:
            gym = Client(self._bus, tasks)
            for earlier in await gym.runs():
                if earlier.state == "active":
                    await gym.cancel(earlier.run)
                    await gym.driver.close_run(earlier, state="cancelled")
            await gym.driver.open_run(info)
            tasks.start_soon(self._flush)
            tasks.start_soon(self._publish, gym, left)
            following = Run(gym.driver, info, self._memory.append, total=len(left), settled=self._settled)
            assert await following.follow()
            self._write()
            await gym.driver.close_run(info)

    async def _publish(self, gym: Client, left: list[RolloutSpec]) -> None:
        await gym.driver.publish(left)
        for task in left:
            if task.task_index in self._plan.twice:
                await gym.driver.bus.enqueue(
                    f"task.{task.agent}.{task.environment}.{task.run}", encode_spec(task)
                )

    def _settled(self, task_index: int, rollout_index: int) -> bool:
        return (task_index, rollout_index) in self.disk

    def _tasks(self, run: str) -> Iterator[RolloutSpec]:
        for index, name in enumerate(self._plan.rollouts):
            replayable = name != "once"
            more = {"agent": AGENTS[name], "replayable": replayable, "timeout_s": LIMIT_S}
            yield rollout_spec(row(), run=run, task=index, environment=name, **more)
        first = len(self._plan.rollouts)
        for index in range(first, first + self._plan.groups):
            for rollout in range(SIZE):
                more = {"environment": GROUPED, "timeout_s": LIMIT_S, "group": GroupSpan(0, SIZE)}
                yield rollout_spec(row(), run=run, task=index, rollout=rollout, **more)

    async def _flush(self) -> None:
        while True:
            await anyio.sleep(FLUSH_S)
            self._write()

    def _write(self) -> None:
        for record in self._memory:
            self.disk.setdefault((record.task_index, record.rollout_index), []).append(record)
        self._memory.clear()


class Fleet:
    """Two workers of each kind; whichever ends has a successor after a pause, as the supervisor sees to."""

    def __init__(self, broker: MemoryBroker, *, hosted: bool) -> None:
        self.workers: dict[Slot, list[Worker]] = {}
        self._broker = broker
        self._hosted = hosted
        self._buses: dict[Slot, list[MemoryBus]] = {}
        self._scopes: dict[Slot, anyio.CancelScope] = {}
        self._made = 0

    async def run(self) -> None:
        """Keep all slots filled until cancelled."""
        kinds: tuple[Victim, ...] = ("resource", "agent") if self._hosted else ("model", "resource", "agent")
        async with anyio.create_task_group() as tasks:
            for kind in kinds:
                for number in (1, 2):
                    tasks.start_soon(self._fill, (kind, number))

    async def _fill(self, slot: Slot) -> None:
        while True:
            self._made += 1
            with anyio.CancelScope() as self._scopes[slot]:
                # A worker that the broker fails ends, and is started again.
                with mortal():
                    await self._live(slot, self._made)
            self.workers.pop(slot, None)
            await anyio.sleep(PAUSE_S)

    async def _live(self, slot: Slot, number: int) -> None:
        """The workers of one process, until they end."""
        kinds: tuple[Victim, ...] = (slot[0],)
        if self._hosted and slot[0] == "agent":
            kinds = ("model", "resource", "agent")
        buses, workers = self._buses[slot], self.workers[slot] = list[MemoryBus](), list[Worker]()
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            for kind in kinds:
                name = f"{kind}-{number}"
                bus = await stack.enter_async_context(self._broker.connect(name))
                buses.append(bus)
                near = [each.service for each in workers if not isinstance(each, AgentWorker)]
                worker = self._make(kind, bus, name, near, hosted=len(kinds) > 1)
                workers.append(worker)
                pools = sorted(AGENTS.values()) if isinstance(worker, AgentWorker) else worker.service.pools
                presence = Heartbeat(worker=name, kind=kind, pools=sorted(set(pools)), capacity=8)
                await stack.enter_async_context(background(partial(announce, bus, partial(_same, presence))))
                ready = anyio.Event()
                tasks.start_soon(partial(worker.run, ready=ready.set))
                await ready.wait()
            await anyio.sleep_forever()

    def _make(self, kind: Victim, bus: MemoryBus, name: str, near: list[Service], *, hosted: bool) -> Worker:
        if kind == "agent":
            agents = {"tool_loop": ToolLoop(), "step_loop": StepLoop()}
            return AgentWorker(bus, worker=name, agents=agents, slots=8, near=near)
        if kind == "model":
            return ModelWorker(bus, worker=name, pools=["policy"], adapter=Thinker(), capacity=8)
        known = {
            name: environment
            for name, environment in environments().items()
            if not self._hosted or environment.definition.replayable == hosted
        }
        return ResourceWorker(bus, worker=name, environments=known, capacity=8, near=near)

    async def inject(self, injection: Injection) -> None:
        """Inject one fault until it is over."""
        victim: Victim = "agent" if self._hosted and injection.victim == "model" else injection.victim
        slot = (victim, injection.number)
        workers = self.workers.get(slot)
        if not workers:
            return
        buses, scope = self._buses[slot][: len(workers)], self._scopes[slot]
        match injection.action:
            case "kill":
                for bus in buses:
                    bus.cut()
                scope.cancel()
            case "stop":
                with anyio.move_on_after(injection.lasts_s):
                    for worker in reversed(workers):
                        drains = isinstance(worker, AgentWorker)
                        await (worker.drain() if drains else worker.service.drained())
                scope.cancel()
            case "cut":
                for bus in buses:
                    bus.cut()
                await anyio.sleep(injection.lasts_s)
                for bus in buses:
                    bus.mend()
            case "freeze":
                for bus in buses:
                    bus.freeze()
                await anyio.sleep(injection.lasts_s)
                for bus in buses:
                    bus.thaw()

    def busy(self) -> int:
        """Calls and rollouts in progress."""
        alive = [worker for workers in self.workers.values() for worker in workers]
        return sum(each.in_use if isinstance(each, AgentWorker) else each.service.in_use for each in alive)


def _same(presence: Heartbeat) -> Heartbeat:
    return presence


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a plan, once all is quiet.

    Attributes:
        disk: each rollout's records.
        parts: how often the client was started.
        sessions, busy: what is still open and in progress.
        restored, unknown: how many sessions went on from a saved state, and from one that none has saved.
        stored: records and tasks that the broker still has, by kind.
    """

    disk: dict[Key, list[RolloutRecord]]
    parts: int
    sessions: int
    restored: int
    unknown: int
    busy: int
    stored: dict[str, int]
    trace: list[Event]

    @property
    def digest(self) -> str:
        """Of the whole trace."""
        return blake2b(repr(self.trace).encode(), digest_size=12).hexdigest()


def play(plan: Plan) -> Play:
    """A plan from its start to its end."""
    OPEN.clear()
    SAVED.clear()
    return virtual_clock.run(lambda: _play(plan), seed=plan.seed)


async def _play(plan: Plan) -> Play:
    storm = Storm(plan.chances)
    broker = MemoryBroker(faults=storm, seed=plan.seed)
    fleet, client = Fleet(broker, hosted=plan.hosted), SimulatedClient(broker, plan)
    async with broker.connect("watcher") as bus, hosting() as tasks:
        tasks.start_soon(fleet.run)
        for injection in plan.injections:
            tasks.start_soon(_inject, injection, fleet, client)
        with anyio.fail_after(ENOUGH_S):
            await client.run()
        storm.over = True
        with anyio.move_on_after(QUIET_S):
            while OPEN["sessions"] or fleet.busy() or await bus.counts("task.>"):
                await anyio.sleep(1.0)
        stored = {
            kind: sum((await bus.counts(f"{kind}.>")).values()) for kind in ("task", "rollout", "journal")
        }
        return Play(
            disk=client.disk,
            parts=client.part,
            sessions=OPEN["sessions"],
            restored=OPEN["restored"],
            unknown=OPEN["restored what was never saved"],
            busy=fleet.busy(),
            stored=stored,
            trace=storm.trace,
        )


async def _inject(injection: Injection, fleet: Fleet, client: SimulatedClient) -> None:
    await anyio.sleep(injection.at_s)
    if injection.victim == "client":
        client.kill()
    else:
        await fleet.inject(injection)
