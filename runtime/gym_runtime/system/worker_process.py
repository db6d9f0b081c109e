"""The life of one worker process: connect, serve, announce itself, drain, leave.

When its supervisor tells it to (`gym_runtime.system.spec.DRAIN_SIGNAL`), a worker drains: it takes no new
work, finishes what is in flight within the limit, gives the rest back to the queue, and closes its
sessions. SIGTERM, SIGINT and a client's request (`gym_runtime.rpc.members`) it only reports to its
supervisor, which knows whether the whole system stops and which workers stop first; a second signal changes
nothing. When the pipe from its supervisor closes, a worker drains within `ORPHAN_DRAIN_S`: it must
not outlive its supervisor.

An agent worker's process may host workers of environments and models (`PoolSpec.hosted`). They start before
it and drain after it. Each has its own name, connection and heartbeat, so that workers of other processes
ask it like any other; the agents of the process call it (`gym_runtime.rpc.ask`).
"""

from __future__ import annotations

import inspect
import os
import signal
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import msgspec
from gym_sandbox.processes import disturbances
from msgspec.structs import replace

from gym_runtime import clock, logs, tracing
from gym_runtime.bus.interface import Bus
from gym_runtime.bus.nats import NatsBus, connect
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.blocked_loop import watching
from gym_runtime.errors import GymError, NoWorker, RuntimeFault, UsageError
from gym_runtime.messages.metric_names import NETWORK, Count, Figures
from gym_runtime.rpc.answer import Service
from gym_runtime.rpc.members import Heartbeat, announce, drained_on_request
from gym_runtime.rpc.meter import process_figures
from gym_runtime.rpc.quarantine import FIRST, Before
from gym_runtime.system.spec import DRAIN_LINE, DRAIN_SIGNAL, READY_LINE, WAITING, Kind, PoolSpec, SystemSpec
from gym_runtime.system.starting import Patience, ended_at_once
from gym_runtime.system.watchdogs import end_when_unserved, shown_as_serving, standing_in
from gym_runtime.timing import CALLERS_GONE_S, ORPHAN_DRAIN_S
from gym_runtime.workers.adapter import Adapter, Holding, ModelSettings

if TYPE_CHECKING:
    from gym_runtime.workers.agent_worker import AgentWorker
    from gym_runtime.workers.model_worker import ModelWorker
    from gym_runtime.workers.resource_worker import ResourceWorker

CALLERS_LOOK_S = 0.25
"""How often a draining worker looks for callers (`CALLERS_GONE_S`)."""

ERROR_CHARS = 500
HOSTED_ORDER: tuple[Kind, ...] = ("model", "resource")
"""The order in which hosted workers start: an environment may ask models."""


class HostedWorker(msgspec.Struct, frozen=True):
    """A worker and how to observe and drain it.

    Attributes:
        counts: says whether it serves and how full it is.
        in_use: how many rollouts, sessions or calls it has.
        detail: what its heartbeat says besides.
    """

    hosted: AgentWorker | ResourceWorker | ModelWorker
    pools: tuple[str, ...]
    counts: AgentWorker | Service
    in_use: Callable[[], int]
    drain: Callable[[], Awaitable[None]]
    detail: Callable[[], dict[str, str]]


@asynccontextmanager
async def hosted_worker(
    pool: PoolSpec, bus: Bus, worker: str, before: Before = FIRST, near: Sequence[Service] = ()
) -> AsyncGenerator[HostedWorker]:
    """The worker of a pool, for as long as the context lasts.

    Args:
        before: the worker whose place it takes.
        near: the services of the workers that live in the same process.

    Raises:
        UsageError: it cannot be made; the message says why.
    """
    if pool.kind == "agent":
        yield _agent_worker(pool, bus, worker, before, near)
    elif pool.kind == "resource":
        yield _resource_worker(pool, bus, worker, near)
    else:
        async with _model_worker(pool, bus, worker) as member:
            yield member


def _agent_worker(
    pool: PoolSpec, bus: Bus, worker: str, before: Before, near: Sequence[Service]
) -> HostedWorker:
    from gym_runtime.workers.agent_worker import AgentWorker

    agents = {catalogue.known_name("agents", name): _made("agents", name) for name in pool.names}
    hosted = AgentWorker(bus, worker=worker, agents=agents, slots=pool.slots, before=before, near=near)

    def detail() -> dict[str, str]:
        counts = {"stalled": hosted.stalled, "suspects": hosted.suspects}
        return {name: str(count) for name, count in counts.items() if count}

    return HostedWorker(hosted, tuple(agents), hosted, lambda: hosted.in_use, hosted.drain, detail)


def adapter_of(settings: ModelSettings) -> Adapter:
    """The adapter of a model, to be entered.

    Raises:
        UsageError: there is no such adapter, or its class is not one.
    """
    return _made("models", settings.provider, settings)


def _made(kind: catalogue.Kind, name: str, *arguments: object) -> Any:
    """An agent, or a model's adapter with its settings."""
    made: Any = catalogue.load_class(kind, name)
    if kind == "models" and not (hasattr(made, "__aenter__") and hasattr(made, "__aexit__")):
        raise UsageError(
            f"{name}: its class 'Adapter' needs the methods __aenter__ and __aexit__, both async"
        )
    try:
        # Tried before the call: a TypeError from within the constructor is another matter. That of a class
        # without one takes nothing, and to find that out by `inspect` takes 15 ms.
        if arguments or made.__init__ is not object.__init__:
            inspect.signature(made).bind(*arguments)
    except TypeError as error:
        given = ", ".join(("self", *(type(argument).__name__ for argument in arguments)))
        raise UsageError(
            f"{name}: its class '{made.__name__}' must take __init__({given}): {error}"
        ) from error
    return made(*arguments)


def _resource_worker(pool: PoolSpec, bus: Bus, worker: str, near: Sequence[Service]) -> HostedWorker:

    from gym_runtime.environment.isolated import start_ahead
    from gym_runtime.workers.resource_worker import ResourceWorker

    # One after the other: imports hold the interpreter's lock, so that threads gain nothing, and some may
    # only be made in the main thread. What isolated verifications need, their processes import side by side.
    logs.logger().info("loading environments", environments=list(pool.names))
    started_s = time.monotonic()
    loaded = catalogue.environments(pool.names)
    for environment in loaded:
        requirements.require(environment)
    logs.logger().info(
        "environments are loaded",
        number=len(loaded),
        took_s=round(time.monotonic() - started_s, 2),
        verifiers_started=start_ahead(loaded),
    )
    environments = {environment.name: environment for environment in loaded}
    hosted = ResourceWorker(bus, worker=worker, environments=environments, capacity=pool.slots, near=near)
    service, detail = hosted.service, {"sandbox": requirements.isolation()}
    if code := catalogue.code_of(loaded):
        detail["code"] = code

    async def drain() -> None:
        await _finish(bus, lambda: service.in_use, service.drained)
        with suppress(GymError):
            # Sessions whose end was not heard of would hold up the drain until their time limit.
            await hosted.close_settled()
        await _finish(bus, lambda: len(hosted.sessions), hosted.sessions.emptied)

    return HostedWorker(hosted, service.pools, service, lambda: len(hosted.sessions), drain, lambda: detail)


async def _finish(bus: Bus, left: Callable[[], int], finished: Callable[[], Awaitable[None]]) -> None:
    """Wait until no work is left, or no caller has been there for `CALLERS_GONE_S`."""
    here_s = anyio.current_time()
    while left() and anyio.current_time() < here_s + CALLERS_GONE_S:
        with anyio.move_on_after(CALLERS_LOOK_S):
            await finished()
        if left() and await _has_callers(bus):
            here_s = anyio.current_time()


async def _has_callers(bus: Bus) -> bool:
    """Whether any follower of the members is alive.

    It asks for the list of a kind that does not exist: a worker need not read the list, only know that a
    follower answers.
    """
    try:
        await bus.request("members.none", b"", deadline_s=clock.monotonic() + CALLERS_GONE_S)
    except NoWorker:
        return False
    except GymError:
        # No answer in time is no proof that there are no callers.
        pass
    return True


@asynccontextmanager
async def _model_worker(pool: PoolSpec, bus: Bus, worker: str) -> AsyncGenerator[HostedWorker]:
    from gym_runtime.workers.model_worker import ModelWorker

    if pool.model is None:
        raise UsageError(
            f"model pool {', '.join(pool.names)} does not say which model; give --model PROVIDER/NAME"
        )
    settings = pool.model
    async with adapter_of(settings) as adapter:
        if (settings.hold_kv_usage or settings.hold_waiting) and not isinstance(adapter, Holding):
            raise UsageError(
                "hold_kv_usage and hold_waiting need an adapter that knows how busy its engine is: "
                f"'openai' or 'vllm' with the URLs of engines, not '{settings.provider}'"
            )
        hosted = ModelWorker(
            bus,
            worker=worker,
            pools=pool.names,
            adapter=adapter,
            capacity=pool.slots,
            per_minute=settings.requests_per_minute / pool.processes,
            call_timeout_s=settings.call_timeout_s,
            model=(settings.provider, settings.name),
        )
        service = hosted.service

        def detail() -> dict[str, str]:
            detail = {"model": f"{settings.provider}/{settings.name}"}
            if hosted.weight_version:
                detail["weight_version"] = hosted.weight_version
            if hosted.paused:
                detail["paused"] = "true"
            if hosted.only_errors:
                detail["only_errors"] = hosted.only_errors[:ERROR_CHARS]
            if hosted.held:
                detail["held"] = hosted.held
            return detail

        def in_use() -> int:
            return service.in_use

        drain = partial(_finish, bus, in_use, service.drained)
        yield HostedWorker(hosted, pool.names, service, in_use, drain, detail)


BLOCKED_S = 2.0
"""A step of the event loop that takes longer is reported: no other rollout of the worker runs meanwhile."""


def _warn_of_a_blocked_loop(place: str, blocked_s: float) -> None:
    logs.logger().warning(
        "the event loop of a worker is blocked; await code that waits, isolate code that computes",
        place=place,
        blocked_s=round(blocked_s, 1),
    )


async def work(
    system: SystemSpec,
    pool: PoolSpec,
    worker: str,
    *,
    before: Before,
    lifeline: int,
    report: Callable[[str], None],
) -> None:
    """Run a worker until it is told to stop.

    Args:
        before: what became of the worker that it replaces.
        lifeline: the pipe that closes when the supervisor ends.
        report: called with a line for the supervisor: `READY_LINE` once it works; `DRAIN_LINE` when another
            process asks it to leave (it goes on until the supervisor tells it to); `WAITING` with the name of
            the part that it waits for before it can start.

    Raises:
        UsageError, BrokerError: it cannot start; the message says why.
    """
    logs.start(worker)
    service = f"gym-runtime-{pool.kind}"
    logs.export(service, worker)
    tracing.start(service, worker)
    try:
        async with AsyncExitStack() as stack:
            members: list[_Member] = []
            with ended_at_once(lifeline):
                patience = Patience(
                    system.wait_s, lambda what: report(f"{WAITING}{' '.join(what.split())}\n")
                )
                for each, name in _parts(pool, worker):
                    bus = await patience.enter(stack, partial(_bus, system, each, name))
                    found = [member.hosted.counts for member in members]
                    near = [service for service in found if isinstance(service, Service)]
                    make = partial(hosted_worker, each, bus, name, before, near)
                    members.append(_Member(each, name, bus, await patience.enter(stack, make)))
            await stack.enter_async_context(watching(BLOCKED_S, _warn_of_a_blocked_loop))
            life = _Life(system, members, before, report)
            for member in members:
                connecting = partial(_bus, system, member.pool, member.name)
                beat = partial(life.heartbeat, member)
                await stack.enter_async_context(standing_in(connecting, beat))
            await life.live(lifeline)
    finally:
        # Last, so that the worker's clean-up is traced and logged, too.
        tracing.stop()
        logs.stop_export()


class _Member(msgspec.Struct, frozen=True):
    """One worker of this process."""

    pool: PoolSpec
    name: str
    bus: NatsBus
    hosted: HostedWorker


def _parts(pool: PoolSpec, worker: str) -> list[tuple[PoolSpec, str]]:
    """The workers of a process with their names: models first, then environments, then the pool's own.

    >>> judge = PoolSpec(kind="model", names=("judge",))
    >>> _, (_, resource), _ = _parts(
    ...     PoolSpec(kind="agent", names=("a",), hosted=(PoolSpec(kind="resource", names=("e",)), judge)),
    ...     "agent-7f",
    ... )
    >>> resource
    'resource-7f'
    """
    hosted = sorted(pool.hosted, key=lambda each: HOSTED_ORDER.index(each.kind))
    suffix = worker.removeprefix(f"{pool.kind}-")
    parts: list[tuple[PoolSpec, str]] = []
    for number, each in enumerate(hosted):
        again = any(each.kind == before.kind for before in hosted[:number])
        parts.append((each, f"{each.kind}-{suffix}" + (f"-{number}" if again else "")))
    return [*parts, (pool, worker)]


def _bus(system: SystemSpec, pool: PoolSpec, worker: str) -> AbstractAsyncContextManager[NatsBus]:
    return connect(
        system.nats, prefix=system.prefix, name=worker, role=pool.kind, streams_needed=system.wait_s > 0
    )


@dataclass(eq=False)
class _Life:
    """The life of the workers of this process; the last of them is the process's own."""

    system: SystemSpec
    members: Sequence[_Member]
    before: Before
    report: Callable[[str], None]
    started_s: float = field(default_factory=clock.now)
    stop: anyio.Event = field(default_factory=anyio.Event)
    limit: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ready: bool = False
    asked: bool = False
    draining: bool = False

    async def live(self, lifeline: int) -> None:
        async with anyio.create_task_group() as tasks:
            # A worker that cannot reach the broker would never start to serve, and never see `self.stop`.
            with ended_at_once(lifeline):
                for member in self.members:
                    started = anyio.Event()
                    tasks.start_soon(self._host, member, started)
                    await started.wait()
                for member in self.members:
                    beat, announced = partial(self.heartbeat, member), anyio.Event()
                    tasks.start_soon(drained_on_request, member.bus, beat, self.system.drain_s, self._leave)
                    tasks.start_soon(partial(announce, member.bus, beat, ready=announced.set))
                    # Before it is said to be ready: a user may list it, or ask it to drain, at once.
                    await announced.wait()
            tasks.start_soon(self._watch_signals)
            tasks.start_soon(self._watch_lifeline, lifeline)
            await anyio.lowlevel.checkpoint()  # the signals are handled now
            end_when_unserved(self._serving)
            async with shown_as_serving():
                self.report(READY_LINE)
                self.ready = True
                if self.asked:
                    self._leave()
                await self.stop.wait()
            self.draining = True
            with self.limit:
                # The end of the supervisor may have set a shorter limit.
                self.limit.deadline = min(self.limit.deadline, anyio.current_time() + self.system.drain_s)
                # Agents first: what they finish needs environments and models.
                for member in reversed(self.members):
                    await member.hosted.drain()
            tasks.cancel_scope.cancel()
        if not self.draining:
            # One of the tasks was cancelled by asyncio's ``cancel``, which ends the group in silence.
            raise _ended_by_itself()

    def _serving(self) -> bool:
        # The supervisor ends a worker that does not drain.
        return self.stop.is_set() or all(member.hosted.counts.serving for member in self.members)

    async def _host(self, member: _Member, started: anyio.Event) -> None:
        await member.hosted.hosted.run(ready=started.set)
        if not self.stop.is_set():
            raise _ended_by_itself()

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(DRAIN_SIGNAL, signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                # Programs that it runs may have got the signal, too (`processes.disturbances`).
                if number == signal.SIGTERM:
                    disturbances.note()
                if number == DRAIN_SIGNAL:
                    self.stop.set()
                else:
                    self._leave()

    def _leave(self) -> None:
        self.asked = True  # perhaps between its announcement and its report that it is ready
        if self.ready:
            with suppress(BrokenPipeError):  # without a supervisor the lifeline ends us
                self.report(DRAIN_LINE)

    async def _watch_lifeline(self, lifeline: int) -> None:
        await anyio.wait_readable(lifeline)
        self.limit.deadline = anyio.current_time() + ORPHAN_DRAIN_S
        self.stop.set()

    def heartbeat(self, member: _Member) -> Heartbeat:
        hosted, own = member.hosted, self.members[-1]
        return Heartbeat(
            worker=member.name,
            kind=member.pool.kind,
            pools=list(hosted.pools),
            host=socket.gethostname(),
            pid=os.getpid(),
            started_s=self.started_s,
            capacity=member.pool.slots,
            in_use=hosted.in_use(),
            load=hosted.counts.load,
            draining=self.draining,
            round_trip_s=round(member.bus.round_trip_s, 3),
            places=True,
            closes_many=True,
            names_images=True,
            crashed=self.before.crashed if member is own else "",
            killed=self.before.killed if member is own else "",
            refused=member.bus.refused,
            detail=hosted.detail() if member is own else {**hosted.detail(), "hosted_by": own.name},
            figures=_figures(member, whole_process=member is own),
        )


def _figures(member: _Member, *, whole_process: bool) -> Figures:
    """A worker's figures; those of the process count once, with its own worker."""
    traffic, kind = member.bus.traffic, member.pool.kind
    cpu_s, memory_bytes = process_figures() if whole_process else (0.0, 0)
    counted = member.hosted.hosted.meter.figures()
    return replace(
        counted,
        counts=[
            *counted.counts,
            Count(NETWORK.name, (kind, "receive"), traffic.received_bytes),
            Count(NETWORK.name, (kind, "transmit"), traffic.sent_bytes),
        ],
        cpu_s=cpu_s,
        memory_bytes=memory_bytes,
    )


def _ended_by_itself() -> RuntimeFault:
    return RuntimeFault("it stopped serving, and it had not been told to; see its log for what was cancelled")
