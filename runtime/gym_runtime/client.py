"""The client: publish rollouts, read their records, look around, cancel. For trainers and notebooks.

async with gym_runtime.connect(model="scripted/message", environments=["mcqa"]) as gym:
    async for record in gym.rollouts(rows, environment="mcqa", repeats=8):
        print(record.reward)
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Literal

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup

from gym_runtime import catalogue, clock, tracing
from gym_runtime.bus.contract import Bus, QueueDepth
from gym_runtime.bus.nats import connect as connect_bus
from gym_runtime.errors import UsageError, leaf
from gym_runtime.files.rows import expand
from gym_runtime.journal import Sweep
from gym_runtime.messages.outcomes import RolloutRecord, decode_record
from gym_runtime.messages.tasks import RolloutTask, encode_task
from gym_runtime.model import ModelSettings
from gym_runtime.system import running
from gym_runtime.workers.presence import Presence, decode_presence
from gym_runtime.workers.spec import PoolSpec, SystemSpec

PUBLISHERS = 64
CANCEL_GRACE_S = 2.0


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as everybody can look it up.

    ``state`` is ``active``, ``finished`` or ``cancelled``.
    """

    run: str
    total: int
    environments: list[str] = []
    agents: list[str] = []
    created_s: float = 0.0
    state: str = "active"


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What is alive and what is waiting."""

    workers: list[Presence]
    queues: dict[str, QueueDepth]
    runs: list[RunInfo]


_encode_run = msgspec.json.Encoder().encode
_decode_run = msgspec.json.Decoder(RunInfo).decode


def new_run_id() -> str:
    """A run's id: sortable by time, unique, one token of a subject."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


class Gym:
    """A connection to a running system. Made by `connect`."""

    def __init__(self, bus: Bus, tasks: TaskGroup) -> None:
        self.bus = bus
        self._tasks = tasks
        self._sweeps: dict[str, Sweep] = {}

    # -- runs -----------------------------------------------------------------------------------------

    async def open_run(self, run: RunInfo) -> None:
        """Make a run known, so that others can collect, list and cancel it."""
        await self.bus.append(f"runs.{run.run}", _encode_run(run))

    async def publish(self, tasks: Iterable[RolloutTask], *, window: anyio.Semaphore | None = None) -> int:
        """Put rollouts on the queue; returns how many. With ``window`` each takes one permit first."""
        limit = anyio.CapacityLimiter(PUBLISHERS)
        count = 0

        async def one(task: RolloutTask) -> None:
            async with limit:
                subject = f"task.{task.agent}.{task.environment}.{task.run}"
                await self.bus.enqueue(subject, encode_task(task), headers=tracing.headers())

        async with _background(cancel=False) as group:
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

    async def follow(
        self, run: str, total: int, take: Callable[[RolloutRecord], Awaitable[None] | None]
    ) -> bool:
        """Hand over a run's records as they are committed, each once, until there are ``total``.

        Returns False if the run is over without that: it was cancelled, and what was in flight then is
        handed over too; or somebody else had all records and freed them.
        """
        count = 0
        waiting_since_s = math.inf

        async def stop_when_over(scope: anyio.CancelScope) -> None:
            async for record in self.bus.records(f"runs.{run}"):
                if _decode_run(record.payload).state != "active":
                    break
            while True:
                await anyio.sleep(CANCEL_GRACE_S / 4)
                if anyio.current_time() >= waiting_since_s + CANCEL_GRACE_S:
                    scope.cancel()

        async with _background() as tasks:
            tasks.start_soon(stop_when_over, tasks.cancel_scope)
            if count < total:
                waiting_since_s = anyio.current_time()
                async for stored in self.bus.records(f"rollout.{run}.>"):
                    waiting_since_s = math.inf
                    record = decode_record(stored.payload)
                    taken = take(record)
                    if taken is not None:
                        await taken
                    done = self._sweep(run).committed(record.task_index) if run in self._sweeps else None
                    if done is not None:
                        tasks.start_soon(self.bus.forget, done)
                    count += 1
                    if count == total:
                        break
                    waiting_since_s = anyio.current_time()
        return count == total

    async def collect(self, run: str) -> AsyncGenerator[RolloutRecord]:
        """The records of a run that somebody else published, until it is finished or cancelled.

        Raises:
            UsageError: there is no such run, or it is over and not all of its records are stored any more.
        """
        info = await self.run(run)
        stream = _Stream()

        async def work() -> None:
            complete = await self.follow(run, info.total, stream.send)
            if not complete and (await self.run(run)).state == "finished":
                raise UsageError(f"run '{run}' is finished, and its records are not stored any more")

        async with aclosing(self._yielded(work, stream)) as records:
            async for record in records:
                yield record

    async def _yielded(
        self, work: Callable[[], Coroutine[Any, Any, None]], stream: _Stream
    ) -> AsyncGenerator[RolloutRecord]:
        # The work is a task of the connection, not of a generator: a generator may be dropped half-way,
        # in another task than it began in, and must not own a task group.
        self._tasks.start_soon(stream.fill, work)
        try:
            async for record in stream.received():
                yield record
        finally:
            stream.close()

    async def run(self, run: str) -> RunInfo:
        """What is known of a run.

        Raises:
            UsageError: there is no such run.
        """
        found = await self.bus.latest(f"runs.{run}")
        if not found:
            known = [info.run for info in await self.runs()]
            raise UsageError(f"there is no run '{run}'{catalogue.suggest(run, known)}")
        return _decode_run(found[0].payload)

    async def runs(self) -> list[RunInfo]:
        """All runs that the broker remembers, oldest first."""
        return [_decode_run(record.payload) for record in await self.bus.latest("runs.*")]

    async def close_run(self, run: RunInfo, *, state: str = "finished") -> None:
        """Say that a run is over and free what the broker stored for it."""
        await self.bus.forget(f"task.*.*.{run.run}")
        await self.bus.append(f"runs.{run.run}", _encode_run(msgspec.structs.replace(run, state=state)))
        await self.bus.forget(f"rollout.{run.run}.>")
        await self.bus.forget(f"journal.{run.run}.>")
        self._sweeps.pop(run.run, None)

    def _sweep(self, run: str) -> Sweep:
        return self._sweeps.setdefault(run, Sweep(run))

    async def finish_run(self, run: RunInfo) -> None:
        """Say that a run is complete. Its records stay for other collectors until the broker drops them."""
        await self.bus.append(f"runs.{run.run}", _encode_run(msgspec.structs.replace(run, state="finished")))
        await self.bus.forget(f"journal.{run.run}.>")

    async def cancel(self, run: str, task_index: int | None = None, rollout_index: int | None = None) -> None:
        """Stop a run, one of its groups, or one rollout: what is waiting is dropped, what runs is stopped.

        Raises:
            UsageError: there is no such run, or a rollout is named without its task.
        """
        if rollout_index is not None and task_index is None:
            raise UsageError("a rollout is named by its task and its index: say which task")
        parts = [str(part) for part in (task_index, rollout_index) if part is not None]
        info = await self.run(run)
        if not parts:
            await self.bus.forget(f"task.*.*.{run}")
            await self.bus.append(
                f"runs.{run}", _encode_run(msgspec.structs.replace(info, state="cancelled"))
            )
        await self.bus.publish(".".join(["cancel", run, *parts]), b"")

    # -- one call for all of it -----------------------------------------------------------------------

    async def rollouts(
        self,
        rows: Iterable[Mapping[str, Any] | bytes | str],
        *,
        environment: str | None = None,
        repeats: int = 1,
        model: str = "policy",
        in_flight: int = 4096,
        return_tokens: bool = False,
        durability: Literal["turn", "result"] = "turn",
        **sampling: Any,
    ) -> AsyncGenerator[RolloutRecord]:
        """Have rollouts made of dataset rows; yields each record once, in the order of completion.

        Leaving the loop early cancels what is left. Failed rollouts are yielded too: their ``reward`` is
        None and their ``outcome`` says why.

        Args:
            rows: dataset rows, as mappings or JSON text.
            environment: for rows without an ``agent_ref``.
            repeats: rollouts per row.
            model: the model pool to ask.
            in_flight: rollouts published and not yet yielded, at most.
            durability: ``turn`` journals every turn, so that another worker goes on where one died;
                ``result`` makes such a rollout anew.
            sampling: overrides for ``responses_create_params``, such as ``temperature``.

        Raises:
            TaskError, UsageError: a row or a name is wrong; nothing was started.
        """
        run = new_run_id()
        lines = [row if isinstance(row, bytes) else _line(row) for row in rows]
        tasks = list(
            expand(
                lines,
                run=run,
                environment=environment,
                repeats=repeats,
                model=model,
                sampling=sampling,
                return_tokens=return_tokens,
                durability=durability,
            )
        )
        info = RunInfo(
            run=run,
            total=len(tasks),
            environments=sorted({task.environment for task in tasks}),
            agents=sorted({task.agent for task in tasks}),
            created_s=clock.now(),
        )
        stream = _Stream()
        window = anyio.Semaphore(in_flight)

        async def work() -> None:
            await self._drive(info, tasks, window, stream)

        async with aclosing(self._yielded(work, stream)) as records:
            async for record in records:
                window.release()
                yield record

    async def _drive(
        self, info: RunInfo, tasks: Sequence[RolloutTask], window: anyio.Semaphore, stream: _Stream
    ) -> None:
        """Publish a run and pass its records on; the run is closed however this ends."""
        finished = False

        async def publish() -> None:
            await self.publish(tasks, window=window)

        try:
            await self.open_run(info)
            async with _background() as group:
                group.start_soon(publish)
                finished = await self.follow(info.run, info.total, stream.send)
        finally:
            with anyio.move_on_after(5, shield=True):
                if not finished:
                    # First: who still writes a journal that is freed would take himself for overtaken.
                    await self.bus.publish(f"cancel.{info.run}", b"")
                await self.close_run(info, state="finished" if finished else "cancelled")

    # -- looking around -------------------------------------------------------------------------------

    async def workers(self) -> list[Presence]:
        """Every worker with a live lease."""
        return [decode_presence(lease.payload) for lease in await self.bus.alive(">") if lease.payload]

    async def status(self) -> Status:
        """Workers, queue depths and runs, now."""
        workers = await self.workers()
        agents = {pool for worker in workers if worker.kind == "agent" for pool in worker.pools}
        runs = await self.runs()
        agents.update(agent for run in runs if run.state == "active" for agent in run.agents)
        queues = {agent: await self.bus.depth(f"agent-{agent}") for agent in sorted(agents)}
        return Status(workers=workers, queues=queues, runs=runs)


class _Stream:
    """Records on their way from the work that brings them to the one who reads them."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[RolloutRecord](256)
        self._scope = anyio.CancelScope()
        self._failure: BaseException | None = None

    async def send(self, record: RolloutRecord) -> None:
        await self._send.send(record)

    async def fill(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the work until it ends or `close` is called; what it raises is raised in the reader."""
        with self._send:
            try:
                with self._scope:
                    await work()
            except Exception as error:  # noqa: BLE001 - not handled: raised in the reader's task
                self._failure = leaf(error)

    async def received(self) -> AsyncGenerator[RolloutRecord]:
        async for record in self._receive:
            yield record
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Nobody reads any more."""
        # The work first: it must not find its stream closed.
        self._scope.cancel()
        self._receive.close()


@asynccontextmanager
async def _background(*, cancel: bool = True) -> AsyncGenerator[TaskGroup]:
    """A task group that ends with its body, and wraps no error in an exception group."""
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
            if cancel:
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        failure = leaf(group)
    if failure is not None:
        raise failure


def _line(row: Mapping[str, Any] | str) -> bytes:
    return row.encode() if isinstance(row, str) else msgspec.json.encode(row)


@asynccontextmanager
async def connect(
    nats: str | Sequence[str] | None = None,
    *,
    model: str | ModelSettings | None = None,
    environments: Sequence[str] = (),
    agents: Sequence[str] = (),
    workers: int = 1,
    concurrency: int = 1024,
    prefix: str = "gym",
) -> AsyncGenerator[Gym]:
    """Connect to a running system, start one, or both.

    With ``nats`` alone it joins the system behind that broker. With ``environments`` and ``model`` it
    starts the workers for them (and a broker, unless ``nats`` names one), which end with the context.

    Args:
        nats: the broker's URL or URLs.
        model: ``PROVIDER/NAME`` or settings, served as the pool ``policy``.
        agents: defaults to those that the environments ask for.
        workers: processes of each kind.
        concurrency: rollouts in flight, over all agent workers.

    Raises:
        UsageError, BrokerError: the message says what is missing.
    """
    urls = [nats] if isinstance(nats, str) else list(nats or ())
    if not urls and not environments:
        raise UsageError("say which system: connect(nats=URL), or connect(model=…, environments=[…])")
    if not urls and model is None:
        raise UsageError("say which model: connect(model='PROVIDER/NAME', environments=[…])")
    async with AsyncExitStack() as stack:
        if environments:
            pools = make_pools(environments, model, agents=agents, workers=workers, concurrency=concurrency)
            system = SystemSpec(pools=pools, nats=tuple(urls), prefix=prefix)
            urls = [(await stack.enter_async_context(running(system))).url]
        bus = await stack.enter_async_context(connect_bus(urls, prefix=prefix))
        yield Gym(bus, await stack.enter_async_context(_background()))


def make_pools(
    environments: Sequence[str],
    model: str | ModelSettings | None,
    *,
    agents: Sequence[str] = (),
    workers: int = 1,
    concurrency: int = 1024,
    model_pool: str = "policy",
) -> tuple[PoolSpec, ...]:
    """The pools that rollouts in these environments need, ``workers`` processes of each kind."""
    wanted = tuple(
        sorted(set(agents) or {catalogue.environment(name).definition.agent for name in environments})
    )
    slots = -(-concurrency // workers)
    pools = [
        PoolSpec(kind="agent", names=wanted, processes=workers, capacity=max(slots, len(wanted))),
        PoolSpec(kind="resource", names=tuple(environments), processes=workers),
    ]
    if model is not None:
        settings = ModelSettings.parse(model) if isinstance(model, str) else model
        pools.append(PoolSpec(kind="model", names=(model_pool,), processes=workers, model=settings))
    return tuple(pools)
