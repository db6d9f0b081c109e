"""`Client`, all that a trainer needs of a running system, and `connect`, which joins or starts one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import Any, Literal

import anyio
import msgspec

from gym_runtime import clock
from gym_runtime.bus.connection import connect as connect_bus
from gym_runtime.client.background import Stream, background
from gym_runtime.client.control import control
from gym_runtime.client.pools import make_pools
from gym_runtime.client.publishing import Flow
from gym_runtime.errors import UsageError
from gym_runtime.files.rows import expand
from gym_runtime.messages import calls
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.run_info import RunInfo, Status, new_run_id
from gym_runtime.rollout.groups import Cancel, Group, GroupPolicy, Groups, Make
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.rpc.roll_call import all_workers, fresh
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings

CONTROL_S = 600.0
AnyRow = Mapping[str, Any] | bytes | str


class _Batch:
    """Rows as one run: its tasks, and the window through which they are published."""

    def __init__(self, rows: Iterable[AnyRow], in_flight: int, **settings: Any) -> None:
        self.run = new_run_id()
        self.tasks = list(expand(map(_line, rows), run=self.run, attached=True, **settings))
        self.window = anyio.Semaphore(in_flight)

    def info(self) -> RunInfo:
        return RunInfo(
            run=self.run,
            total=len(self.tasks),
            environments=sorted({task.environment for task in self.tasks}),
            agents=sorted({task.agent for task in self.tasks}),
            created_s=clock.now(),
        )


class Client(Flow):
    """A connection to a running system. Made by `connect`."""

    async def rollouts(
        self,
        rows: Iterable[AnyRow],
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
        batch = _Batch(
            rows,
            in_flight,
            environment=environment,
            repeats=repeats,
            model=model,
            sampling=sampling,
            return_tokens=return_tokens,
            durability=durability,
            max_staleness=max_staleness,
        )
        stream = Stream[RolloutRecord]()

        async def work() -> None:
            await self._drive(batch, len(batch.tasks), stream.send)

        async with aclosing(self._yielded(work, stream)) as records:
            async for record in records:
                batch.window.release()
                yield record

    async def groups(
        self,
        rows: Iterable[AnyRow],
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
                `gym_runtime.rollout.groups`.
            in_flight: rollouts published and not yet settled, at most.

        Raises:
            TaskError, UsageError: a row or a name is wrong; nothing was started.
        """
        batch = _Batch(
            rows,
            in_flight,
            environment=environment,
            repeats=repeats,
            model=model,
            sampling=sampling,
            return_tokens=return_tokens,
            durability=durability,
            max_staleness=max_staleness,
        )
        groups = Groups(batch.tasks, on_failure)
        stream = Stream[Group]()

        async def take(record: RolloutRecord) -> None:
            commands = groups.take(record)
            # A replacement takes over the place: a free one would go to whoever waits for it.
            if not any(isinstance(command, Make) for command in commands):
                batch.window.release()
            for command in commands:
                match command:
                    case Make(task):
                        await self.publish([task])
                    case Cancel(task_index):
                        await self.cancel(record.run, task_index)
                    case Group():
                        await stream.send(command)

        async def work() -> None:
            await self._drive(batch, lambda: groups.total, take)

        async with aclosing(self._yielded(work, stream)) as complete:
            async for group in complete:
                yield group

    async def _drive(
        self,
        batch: _Batch,
        total: int | Callable[[], int],
        take: Callable[[RolloutRecord], Awaitable[None]],
    ) -> None:
        """Publish a run and pass its records on; the run is over however this ends."""
        async with self.attach(batch.info()) as attached, background() as tasks:
            tasks.start_soon(partial(self.publish, batch.tasks, window=batch.window))
            attached.finished = await self.follow(batch.run, total, take, shed=True)

    # -- looking around -------------------------------------------------------------------------------

    async def workers(self) -> list[Heartbeat]:
        """Every worker that is alive. Its load is that of its last announcement; `status` asks each."""
        return await all_workers(self.bus)

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
        return await control(self.bus, [one.worker for one in workers], command, limit_s=limit_s)

    async def status(self) -> Status:
        """Workers, queue depths and runs, now."""
        workers = await fresh(self.bus, await self.workers())
        agents = {pool for worker in workers if worker.kind == "agent" for pool in worker.pools}
        runs = await self.runs()
        agents.update(agent for run in runs if run.state == "active" for agent in run.agents)
        queues = {agent: await self.bus.depth(f"agent-{agent}") for agent in sorted(agents)}
        return Status(workers=workers, queues=queues, runs=runs)


def _several(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _line(row: AnyRow) -> bytes:
    if isinstance(row, bytes):
        return row
    return row.encode() if isinstance(row, str) else msgspec.json.encode(row)


@asynccontextmanager
async def connect(
    nats: str | Sequence[str] | None = None,
    *,
    model: str | ModelSettings | None = None,
    environments: str | Sequence[str] = (),
    agents: str | Sequence[str] = (),
    workers: int = 1,
    concurrency: int = 1024,
    prefix: str = "gym",
) -> AsyncGenerator[Client]:
    """Connect to a running system, start one, or both.

    With ``nats`` alone it joins the system behind that broker. With ``environments`` and ``model`` it
    starts the workers for them (and a broker, unless ``nats`` names one), which end with the context.

    Args:
        nats: the broker's URL or URLs.
        model: ``PROVIDER/NAME`` or settings, served as the pool ``policy``.
        environments: one or several names, or paths of modules.
        agents: one or several; defaults to those that the environments ask for.
        workers: processes of each kind.
        concurrency: rollouts in flight, over all agent workers.

    Raises:
        UsageError, BrokerError: the message says what is missing.
    """
    urls = [nats] if isinstance(nats, str) else list(nats or ())
    environments, agents = _several(environments), _several(agents)
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
        yield Client(bus, await stack.enter_async_context(background()))
