"""`Client`, all that a trainer needs of a running system, and `connect`, which joins or starts one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
from anyio.abc import TaskGroup

from gym_runtime import clock
from gym_runtime.bus.connection import connect as connect_bus
from gym_runtime.bus.interface import Bus
from gym_runtime.client.background import Stream, background
from gym_runtime.client.control import control
from gym_runtime.client.pools import make_pools, require_roles
from gym_runtime.client.progress import look
from gym_runtime.client.publishing import IN_FLIGHT, Flow
from gym_runtime.client.sampling import check_engine
from gym_runtime.client.status import RunProgress, Status
from gym_runtime.client.window import Window
from gym_runtime.errors import UsageError
from gym_runtime.files.rows import check_sampling, expand, whole_groups
from gym_runtime.messages import calls
from gym_runtime.messages.names import is_token, token
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_info import RunInfo, new_run_id
from gym_runtime.rollout.comparisons import Comparisons
from gym_runtime.rollout.groups import Cancel, Group, GroupPolicy, Groups, Make
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.rpc.roll_call import all_workers, fresh
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings

CONTROL_S = 600.0
POLICY = "policy"
"""The pool of the policy, which may also answer in a role."""
AnyRow = Mapping[str, Any] | bytes | str


class Client(Flow):
    """A connection to a running system. Made by `connect`.

    Args:
        roles: which pool serves which role, where the settings of rollouts do not say.

    Attributes:
        served: the model that `connect` has started as the pool ``policy``, if it has.
    """

    served: ModelSettings | None = None

    def __init__(self, bus: Bus, tasks: TaskGroup, roles: Mapping[str, str] | None = None) -> None:
        super().__init__(bus, tasks)
        self._roles = dict(roles or {})

    def rollouts(
        self,
        rows: Iterable[AnyRow],
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        in_flight: int = IN_FLIGHT,
        **keywords: Any,
    ) -> AsyncGenerator[RolloutRecord]:
        """Have rollouts made of dataset rows; yields each record once, in the order of completion.

        Leaving the loop early cancels what is left. Failed rollouts are yielded too: their ``reward`` is
        None and their ``outcome`` says why.

        Args:
            rows: dataset rows, as mappings or JSON text. A list is checked whole before anything starts;
                any other iterable is read as places become free, so memory does not grow with it.
            settings: how rollouts are made.
            environment: for rows without an ``agent_ref``.
            in_flight: rollouts published and not yet yielded, at most.
            keywords: fields of `RolloutSettings` to change in ``settings``, such as ``repeats``; others win
                over the rows: the fields of `Sampling`, such as ``temperature``, ``top_k`` or ``seed``, and
                those of ``responses_create_params``.

        Raises:
            TaskError, UsageError: a row, a name or a value is wrong, or the model's engine does not have a
                sampling parameter; of a list, nothing was started.
        """
        specs, run = self._specs(rows, settings, environment, keywords)
        return self.make(specs, run, in_flight=in_flight)

    async def groups(
        self,
        rows: Iterable[AnyRow],
        settings: RolloutSettings | None = None,
        *,
        environment: str | None = None,
        on_failure: GroupPolicy = "replace",
        in_flight: int = IN_FLIGHT,
        **keywords: Any,
    ) -> AsyncGenerator[Group]:
        """As `rollouts`, but each row's rollouts come together, as soon as all of them are settled.

        Args:
            on_failure: what becomes of a group in which a rollout fails for good; see
                `gym_runtime.rollout.groups`.
            in_flight: rollouts published and not yet settled, at most.

        Raises:
            TaskError, UsageError: as `rollouts`; of a list, nothing was started.
        """
        specs, run = self._specs(rows, settings, environment, keywords)
        groups, comparisons = Groups(on_failure), Comparisons()
        stream = Stream[Group]()
        window = Window(in_flight)

        async def take(record: RolloutRecord) -> None:
            commands = groups.take(record)
            # A replacement takes the place of the failed rollout; a released one would go to another row.
            if not any(isinstance(command, Make) for command in commands):
                window.release(record)
            for command in commands:
                match command:
                    case Make(task):
                        comparisons.expect(task)
                        await self.publish([task])
                    case Cancel(task_index):
                        await self.cancel(record.run, task_index)
                    case Group():
                        await stream.send(command)

        async def work() -> None:
            await self._drive(
                groups.noting(specs),
                run,
                window,
                take,
                comparisons=comparisons,
                more=lambda: groups.replacements,
            )

        async with aclosing(self._yielded(work, stream)) as complete:
            async for group in complete:
                yield group

    def _specs(
        self,
        rows: Iterable[AnyRow],
        settings: RolloutSettings | None,
        environment: str | None,
        keywords: Mapping[str, Any],
    ) -> tuple[Iterable[RolloutSpec], RunInfo]:
        """The rollouts of a new run, and what others are told of it."""
        if isinstance(rows, Mapping | str | bytes):
            raise UsageError("rows is one row where a list of rows is due: [row]")
        run = new_run_id()
        settings = (settings or RolloutSettings()).with_keywords(keywords)
        settings = replace(settings, roles={**self._roles, **settings.roles})
        if self.served is not None and settings.model_pool == POLICY:
            check_engine(self.served, check_sampling(settings.sampling))
        model = settings.model_pool
        if self.served is not None and model == POLICY:
            model = f"{self.served.provider}/{self.served.name}"
        specs = expand(map(_line, rows), settings, run=run, environment=environment, attached=True)
        if isinstance(rows, Sequence):
            listed = whole_groups(list(specs))
            return listed, RunInfo(
                run=run,
                total=len(listed),
                environments=sorted({spec.environment for spec in listed}),
                agents=sorted({spec.agent for spec in listed}),
                created_s=clock.now(),
                model=model,
            )
        named = [environment] if environment else []
        return specs, RunInfo(run=run, total=0, environments=named, created_s=clock.now(), model=model)

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

    async def dead_engine(self, model: str = POLICY) -> str:
        """What a model's engine says, if every worker of it has had nothing but errors so far; else empty."""
        asked = [one for one in await self.workers() if one.kind == "model" and model in one.pools]
        said = [one.detail.get("only_errors", "") for one in await fresh(self.bus, asked)]
        return said[0] if said and all(said) else ""

    async def status(self) -> Status:
        """Workers, queue depths and runs, now."""
        workers = await fresh(self.bus, await self.workers())
        agents = {pool for worker in workers if worker.kind == "agent" for pool in worker.pools}
        runs = await self.runs()
        agents.update(agent for run in runs if run.state == "active" for agent in run.agents)
        queues = {
            agent: await self.bus.depth(f"agent-{token(agent, 'agent')}")
            for agent in sorted(filter(is_token, agents))
        }
        return Status(workers=workers, queues=queues, runs=runs, progress=await self.progress(runs))

    async def progress(self, runs: Iterable[RunInfo]) -> dict[str, RunProgress]:
        """How far runs are, by their ids."""
        return await look(self.bus, runs)


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
    roles: Mapping[str, str | ModelSettings] | None = None,
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
        roles: the same for the models of the environments' roles, each served as the pool of its name, such
            as ``{"judge": "openai/NAME"}``; ``"policy"`` to have the policy answer in a role too.
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
    if roles and not environments:
        raise UsageError("roles=… starts models for environments=[…]; which pool serves a role is a setting")
    own = {role: settings for role, settings in (roles or {}).items() if settings != POLICY}
    served = {role: role if role in own else POLICY for role in roles or {}}
    async with AsyncExitStack() as stack:
        if environments:
            if nats is None:
                require_roles(environments, served, "connect(roles={{'{}': 'PROVIDER/NAME'}}, …)".format)
            pools = make_pools(
                environments, model, agents=agents, workers=workers, concurrency=concurrency, roles=own
            )
            system = SystemSpec(pools=pools, nats=tuple(urls), prefix=prefix)
            urls = [(await stack.enter_async_context(running(system))).url]
        bus = await stack.enter_async_context(connect_bus(urls, prefix=prefix))
        gym = Client(bus, await stack.enter_async_context(background()), served)
        if environments and model is not None:
            gym.served = ModelSettings.parse(model) if isinstance(model, str) else model
        yield gym
