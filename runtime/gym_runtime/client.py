"""The client: publish rollouts, read their records, look around, cancel. For trainers and notebooks.

async with gym_runtime.connect(model="scripted/message", environments=["mcqa"]) as gym:
    async for record in gym.rollouts(rows, environment="mcqa", repeats=8):
        print(record.reward)
"""

from __future__ import annotations

import math
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Any, Literal, TypeVar

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup

from gym_runtime import catalogue, clock, tracing
from gym_runtime.background import Stream, background
from gym_runtime.bus.contract import Bus, Incoming
from gym_runtime.bus.nats import connect as connect_bus
from gym_runtime.errors import GymError, UsageError, from_fault
from gym_runtime.files.rows import expand
from gym_runtime.groups import Cancel, Group, GroupPolicy, Groups, Make
from gym_runtime.journal import Sweep
from gym_runtime.messages import calls
from gym_runtime.messages.outcomes import RolloutRecord, decode_record
from gym_runtime.messages.tasks import RolloutTask, encode_task
from gym_runtime.model import ModelSettings
from gym_runtime.runs import RunInfo, Status, decode_run, encode_run, new_run_id
from gym_runtime.system import running
from gym_runtime.workers.presence import Presence, decode_presence
from gym_runtime.workers.spec import PoolSpec, SystemSpec

PUBLISHERS = 64
CANCEL_GRACE_S = 2.0
CONTROL_S = 600.0
T = TypeVar("T")


class Attended(msgspec.Struct):
    """A run whose client is there; who sets ``finished`` has had all of its records."""

    finished: bool = False


class Gym:
    """A connection to a running system. Made by `connect`."""

    def __init__(self, bus: Bus, tasks: TaskGroup) -> None:
        self.bus = bus
        self._tasks = tasks
        self._sweeps: dict[str, Sweep] = {}

    # -- runs -----------------------------------------------------------------------------------------

    async def open_run(self, run: RunInfo) -> None:
        """Make a run known, so that others can collect, list and cancel it."""
        await self.bus.append(f"runs.{run.run}", encode_run(run))

    async def publish(self, tasks: Iterable[RolloutTask], *, window: anyio.Semaphore | None = None) -> int:
        """Put rollouts on the queue; returns how many. With ``window`` each takes one permit first."""
        limit = anyio.CapacityLimiter(PUBLISHERS)
        count = 0

        async def one(task: RolloutTask) -> None:
            async with limit:
                subject = f"task.{task.agent}.{task.environment}.{task.run}"
                await self.bus.enqueue(subject, encode_task(task), headers=tracing.headers())

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
    async def attend(self, run: RunInfo) -> AsyncGenerator[Attended]:
        """Open a run that is worked on while this context lasts; at its end the run is over, however it ends.

        Tasks that are ``attended`` stop when this client is gone.
        """

        async def answer(incoming: Incoming) -> None:
            with suppress(GymError):
                await self.bus.publish(incoming.reply, b"")

        def receive(incoming: Incoming) -> None:
            self._tasks.start_soon(answer, incoming)

        attended = Attended()
        async with self.bus.serve(f"client.{run.run}", receive):
            try:
                await self.open_run(run)
                yield attended
            finally:
                # What ended the run is what is to be told, not that it could not be closed.
                with anyio.move_on_after(5, shield=True), suppress(GymError):
                    if not attended.finished:
                        # First: who still writes a journal that is freed would take himself for overtaken.
                        await self.bus.publish(f"cancel.{run.run}", b"")
                    await self.close_run(run, state="finished" if attended.finished else "cancelled")

    async def follow(
        self,
        run: str,
        total: int | Callable[[], int],
        take: Callable[[RolloutRecord], Awaitable[None] | None],
    ) -> bool:
        """Hand over a run's records as they are committed, each once, until there are ``total``.

        ``total`` may be a function where ``take`` leads to more of them.

        Returns False if the run is over without that: it was cancelled, and what was in flight then is
        handed over too; or somebody else had all records and freed them.
        """
        expected = total if callable(total) else lambda: total
        count = 0
        waiting_since_s = math.inf

        async def stop_when_over(scope: anyio.CancelScope) -> None:
            async for record in self.bus.records(f"runs.{run}"):
                if decode_run(record.payload).state != "active":
                    break
            while True:
                await anyio.sleep(CANCEL_GRACE_S / 4)
                if anyio.current_time() >= waiting_since_s + CANCEL_GRACE_S:
                    scope.cancel()

        async with background() as tasks:
            tasks.start_soon(stop_when_over, tasks.cancel_scope)
            if count < expected():
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
                    if count >= expected():
                        break
                    waiting_since_s = anyio.current_time()
        return count >= expected()

    async def collect(self, run: str) -> AsyncGenerator[RolloutRecord]:
        """The records of a run that somebody else published, until it is finished or cancelled.

        Raises:
            UsageError: there is no such run, or it is over and not all of its records are stored any more.
        """
        info = await self.run(run)
        stream = Stream[RolloutRecord]()

        async def work() -> None:
            complete = await self.follow(run, info.total, stream.send)
            if not complete and (await self.run(run)).state == "finished":
                raise UsageError(f"run '{run}' is finished, and its records are not stored any more")

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

    async def run(self, run: str) -> RunInfo:
        """What is known of a run.

        Raises:
            UsageError: there is no such run.
        """
        found = await self.bus.latest(f"runs.{run}")
        if not found:
            known = [info.run for info in await self.runs()]
            raise UsageError(f"there is no run '{run}'{catalogue.suggest(run, known)}")
        return decode_run(found[0].payload)

    async def runs(self) -> list[RunInfo]:
        """All runs that the broker remembers, oldest first."""
        return [decode_run(record.payload) for record in await self.bus.latest("runs.*")]

    async def close_run(self, run: RunInfo, *, state: str = "finished") -> None:
        """Say that a run is over and free what the broker stored for it."""
        await self.bus.forget(f"task.*.*.{run.run}")
        await self.bus.append(f"runs.{run.run}", encode_run(msgspec.structs.replace(run, state=state)))
        await self.bus.forget(f"rollout.{run.run}.>")
        await self.bus.forget(f"journal.{run.run}.>")
        await self.bus.forget(f"runs.{run.run}.cancelled.>")
        self._sweeps.pop(run.run, None)

    def _sweep(self, run: str) -> Sweep:
        return self._sweeps.setdefault(run, Sweep(run))

    async def finish_run(self, run: RunInfo) -> None:
        """Say that a run is complete. Its records stay for other collectors until the broker drops them."""
        await self.bus.append(f"runs.{run.run}", encode_run(msgspec.structs.replace(run, state="finished")))
        await self.bus.forget(f"journal.{run.run}.>")
        await self.bus.forget(f"runs.{run.run}.cancelled.>")

    async def cancel(self, run: str, task_index: int | None = None, rollout_index: int | None = None) -> None:
        """Stop a run, one of its groups, or one rollout: what is waiting is dropped, what runs is stopped.

        Raises:
            UsageError: there is no such run, or a rollout is named without its task.
        """
        if rollout_index is not None and task_index is None:
            raise UsageError("a rollout is named by its task and its index: say which task")
        parts = [str(part) for part in (task_index, rollout_index) if part is not None]
        info = await self.run(run)
        if parts:
            await self.bus.append(".".join(["runs", run, "cancelled", *parts]), b"")
        else:
            await self.bus.forget(f"task.*.*.{run}")
            await self.bus.append(f"runs.{run}", encode_run(msgspec.structs.replace(info, state="cancelled")))
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
        max_staleness: int | None = None,
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
            max_staleness: versions of the weights that a rollout may lie behind the newest at its end; an
                older one is made anew. None for any number.
            sampling: overrides for ``responses_create_params``, such as ``temperature``.

        Raises:
            TaskError, UsageError: a row or a name is wrong; nothing was started.
        """
        run = new_run_id()
        tasks = _expanded(
            rows,
            run=run,
            environment=environment,
            repeats=repeats,
            model=model,
            sampling=sampling,
            return_tokens=return_tokens,
            durability=durability,
            max_staleness=max_staleness,
        )
        stream = Stream[RolloutRecord]()
        window = anyio.Semaphore(in_flight)

        async def work() -> None:
            await self._drive(run, tasks, window, len(tasks), stream.send)

        async with aclosing(self._yielded(work, stream)) as records:
            async for record in records:
                window.release()
                yield record

    async def groups(
        self,
        rows: Iterable[Mapping[str, Any] | bytes | str],
        *,
        environment: str | None = None,
        repeats: int,
        on_failure: GroupPolicy = "replace",
        model: str = "policy",
        in_flight: int = 4096,
        return_tokens: bool = False,
        durability: Literal["turn", "result"] = "turn",
        max_staleness: int | None = None,
        **sampling: Any,
    ) -> AsyncGenerator[Group]:
        """As `rollouts`, but each row's rollouts come together, as soon as all of them are settled.

        Args:
            on_failure: what becomes of a group in which a rollout fails for good; see
                `gym_runtime.groups`.
            in_flight: rollouts published and not yet settled, at most.

        Raises:
            TaskError, UsageError: a row or a name is wrong; nothing was started.
        """
        run = new_run_id()
        tasks = _expanded(
            rows,
            run=run,
            environment=environment,
            repeats=repeats,
            model=model,
            sampling=sampling,
            return_tokens=return_tokens,
            durability=durability,
            max_staleness=max_staleness,
        )
        groups = Groups(tasks, on_failure)
        stream = Stream[Group]()
        window = anyio.Semaphore(in_flight)

        async def take(record: RolloutRecord) -> None:
            window.release()
            for command in groups.take(record):
                match command:
                    case Make(task):
                        window.acquire_nowait()
                        await self.publish([task])
                    case Cancel(task_index):
                        await self.bus.publish(f"cancel.{record.run}.{task_index}", b"")
                    case Group():
                        await stream.send(command)

        async def work() -> None:
            await self._drive(run, tasks, window, lambda: groups.total, take)

        async with aclosing(self._yielded(work, stream)) as complete:
            async for group in complete:
                yield group

    async def _drive(
        self,
        run: str,
        tasks: Sequence[RolloutTask],
        window: anyio.Semaphore,
        total: int | Callable[[], int],
        take: Callable[[RolloutRecord], Awaitable[None]],
    ) -> None:
        """Publish a run and pass its records on; the run is over however this ends."""
        info = RunInfo(
            run=run,
            total=len(tasks),
            environments=sorted({task.environment for task in tasks}),
            agents=sorted({task.agent for task in tasks}),
            created_s=clock.now(),
        )

        async def publish() -> None:
            await self.publish(tasks, window=window)

        async with self.attend(info) as attended, background() as group:
            group.start_soon(publish)
            attended.finished = await self.follow(info.run, total, take)

    # -- looking around -------------------------------------------------------------------------------

    async def workers(self) -> list[Presence]:
        """Every worker with a live lease."""
        return [decode_presence(lease.payload) for lease in await self.bus.alive(">") if lease.payload]

    async def control(
        self, command: calls.Control, *, model: str = "policy", limit_s: float = CONTROL_S
    ) -> dict[str, calls.ControlAnswer]:
        """Pause, resume or change the weights of a model, on all of its workers at once; no rollout ends.

        Returns each worker's answer, by the worker's id.

        Raises:
            UsageError: nobody serves the model.
            ModelRefused: an engine cannot do it.
            GymError: a worker did not answer within ``limit_s`` seconds, or its engine failed.
        """
        workers = [one for one in await self.workers() if one.kind == "model" and model in one.pools]
        if not workers:
            raise UsageError(f"no worker serves model '{model}'; start one with: gym-runtime start model")
        answers: dict[str, calls.ControlAnswer] = {}

        async def one(worker: str) -> None:
            deadline_s = clock.now() + limit_s
            data = await self.bus.request(f"control.{worker}", calls.encode(command), deadline_s=deadline_s)
            reply = calls.decode_reply(data)
            if reply.fault is not None:
                raise from_fault(reply.fault)
            answers[worker] = calls.decode_control_answer(reply.body)

        async with background(cancel=False) as tasks:
            for presence in workers:
                tasks.start_soon(one, presence.worker)
        return answers

    async def status(self) -> Status:
        """Workers, queue depths and runs, now."""
        workers = await self.workers()
        agents = {pool for worker in workers if worker.kind == "agent" for pool in worker.pools}
        runs = await self.runs()
        agents.update(agent for run in runs if run.state == "active" for agent in run.agents)
        queues = {agent: await self.bus.depth(f"agent-{agent}") for agent in sorted(agents)}
        return Status(workers=workers, queues=queues, runs=runs)


def _expanded(
    rows: Iterable[Mapping[str, Any] | bytes | str], *, run: str, **settings: Any
) -> list[RolloutTask]:
    lines = [row if isinstance(row, bytes) else _line(row) for row in rows]
    return list(expand(lines, run=run, attended=True, **settings))


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
        yield Gym(bus, await stack.enter_async_context(background()))


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
