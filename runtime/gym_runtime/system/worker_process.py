"""The life of one worker process: connect, serve, announce itself, drain, leave.

When its supervisor tells it to (`gym_runtime.system.spec.DRAIN_SIGNAL`), a worker drains: it takes no new
work, finishes what is in flight within the limit, gives the rest back to the queue, and closes its
sessions. SIGTERM, SIGINT and a client's request (`gym_runtime.rpc.members`) it only reports to its
supervisor, which knows whether the whole system stops and whose turn it is; so nothing changes however
often they come. When the pipe from its supervisor closes, a worker drains within `ORPHAN_DRAIN_S`: it must
not outlive its supervisor.
"""

from __future__ import annotations

import inspect
import os
import signal
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Protocol

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
from gym_runtime.messages.figures import Count, Figures
from gym_runtime.messages.metric_names import NETWORK
from gym_runtime.rpc.members import Heartbeat, announce, drained_on_request
from gym_runtime.rpc.meter import Meter, process_figures
from gym_runtime.system.spec import DRAIN_SIGNAL, PoolSpec, SystemSpec
from gym_runtime.system.starting import Patience, ended_at_once
from gym_runtime.system.watchdogs import end_when_unserved, standing_in
from gym_runtime.timing import CALLERS_GONE_S, ORPHAN_DRAIN_S
from gym_runtime.workers.adapter import Adapter, ModelSettings

CALLERS_LOOK_S = 0.25
"""How often a draining worker looks for callers (`CALLERS_GONE_S`)."""

ERROR_CHARS = 500


class _Runs(Protocol):
    """What every kind of worker can do."""

    async def run(self, *, ready: Callable[[], None]) -> None: ...


class HostedWorker(msgspec.Struct, frozen=True):
    """A worker and how to observe and drain it."""

    hosted: _Runs
    pools: tuple[str, ...]
    serving: Callable[[], bool]
    in_use: Callable[[], int]
    load: Callable[[], float]
    drain: Callable[[], Awaitable[None]]
    meter: Meter
    detail: Callable[[], dict[str, str]] = dict


@asynccontextmanager
async def hosted_worker(pool: PoolSpec, bus: Bus, worker: str, crashed: str) -> AsyncGenerator[HostedWorker]:
    """The worker of a pool, for as long as the context lasts; ``crashed`` is the one whose place it takes.

    Raises:
        UsageError: it cannot be made; the message says why.
    """
    if pool.kind == "agent":
        yield _agent_worker(pool, bus, worker, crashed)
    elif pool.kind == "resource":
        yield _resource_worker(pool, bus, worker)
    else:
        async with _model_worker(pool, bus, worker) as member:
            yield member


def _agent_worker(pool: PoolSpec, bus: Bus, worker: str, crashed: str) -> HostedWorker:
    from gym_runtime.workers.agent_worker import AgentWorker

    agents = {catalogue.known_name("agents", name): _made("agents", name) for name in pool.names}
    hosted = AgentWorker(bus, worker=worker, agents=agents, slots=pool.slots, crashed=crashed)

    def detail() -> dict[str, str]:
        return {"stalled": str(hosted.stalled)} if hosted.stalled else {}

    return HostedWorker(
        hosted,
        tuple(agents),
        lambda: hosted.serving,
        lambda: hosted.in_use,
        lambda: hosted.load,
        hosted.drain,
        hosted.meter,
        detail,
    )


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
        # Tried before the call: a TypeError from within the constructor is another matter.
        inspect.signature(made).bind(*arguments)
    except TypeError as error:
        given = ", ".join(("self", *(type(argument).__name__ for argument in arguments)))
        raise UsageError(
            f"{name}: its class '{made.__name__}' must take __init__({given}): {error}"
        ) from error
    return made(*arguments)


def _resource_worker(pool: PoolSpec, bus: Bus, worker: str) -> HostedWorker:

    from gym_runtime.environment.isolated import start_ahead
    from gym_runtime.workers.resource_worker import ResourceWorker

    # One after the other: imports hold the interpreter's lock, so that threads gain nothing, and some may
    # only be made in the main thread. What isolated verifications need, their processes import side by side.
    logs.logger().info("loading environments", environments=list(pool.names))
    started_s = time.monotonic()
    loaded = [catalogue.environment(name) for name in pool.names]
    for environment in loaded:
        requirements.require(environment)
    logs.logger().info(
        "environments are loaded",
        number=len(loaded),
        took_s=round(time.monotonic() - started_s, 2),
        verifiers_started=start_ahead(loaded),
    )
    environments = {environment.name: environment for environment in loaded}
    hosted = ResourceWorker(bus, worker=worker, environments=environments, capacity=pool.slots)
    detail = {"sandbox": requirements.isolation()}

    async def drain() -> None:
        await _finish(bus, lambda: hosted.service.in_use, hosted.service.drained)
        with suppress(GymError):
            # Sessions whose end was not heard of would hold up the drain until their time limit.
            await hosted.close_settled()
        await _finish(bus, lambda: len(hosted.sessions), hosted.sessions.emptied)

    return HostedWorker(
        hosted,
        hosted.service.pools,
        lambda: hosted.service.serving,
        lambda: len(hosted.sessions),
        lambda: hosted.service.load,
        drain,
        hosted.meter,
        lambda: detail,
    )


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
            return detail

        yield HostedWorker(
            hosted,
            pool.names,
            lambda: service.serving,
            lambda: service.in_use,
            lambda: service.load,
            lambda: _finish(bus, lambda: service.in_use, service.drained),
            hosted.meter,
            detail,
        )


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
    crashed: str,
    lifeline: int,
    ready: Callable[[], None],
    leave: Callable[[], None],
    waiting: Callable[[str], None],
) -> None:
    """Run a worker until it is told to stop.

    Args:
        crashed: the worker that it replaces, if that worker crashed.
        lifeline: the pipe that closes when the supervisor ends.
        ready: called once it works.
        leave: called when somebody else than the supervisor asks it to leave; it goes on until it is told.
        waiting: called with the name of the part that it waits for before it can start.

    Raises:
        UsageError, BrokerError: it cannot start; the message says why.
    """
    logs.start(worker)
    service = f"gym-runtime-{pool.kind}"
    logs.export(service, worker)
    tracing.start(service, worker)
    try:
        async with AsyncExitStack() as stack:
            with ended_at_once(lifeline):
                patience = Patience(system.wait_s, waiting)
                bus = await patience.enter(stack, lambda: _bus(system, pool, worker))
                member = await patience.enter(stack, lambda: hosted_worker(pool, bus, worker, crashed))
            await stack.enter_async_context(watching(BLOCKED_S, _warn_of_a_blocked_loop))
            life = _Life(system, pool, worker, crashed, bus, member, leave)
            await stack.enter_async_context(standing_in(lambda: _bus(system, pool, worker), life.heartbeat))
            await life.live(lifeline, ready)
    finally:
        # Last, so that the worker's clean-up is traced and logged, too.
        tracing.stop()
        logs.stop_export()


def _bus(system: SystemSpec, pool: PoolSpec, worker: str) -> AbstractAsyncContextManager[NatsBus]:
    return connect(
        system.nats, prefix=system.prefix, name=worker, role=pool.kind, streams_needed=system.wait_s > 0
    )


class _Life:
    def __init__(
        self,
        system: SystemSpec,
        pool: PoolSpec,
        worker: str,
        crashed: str,
        bus: NatsBus,
        member: HostedWorker,
        leave: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._worker = worker
        self._crashed = crashed
        self._bus = bus
        self._member = member
        self._leave = leave
        self._started_s = clock.now()
        self._stop = anyio.Event()
        self._draining = False
        self._drain_s = system.drain_s
        self._limit = anyio.CancelScope()

    async def live(self, lifeline: int, ready: Callable[[], None]) -> None:
        async with anyio.create_task_group() as tasks:
            started = anyio.Event()
            # A worker that cannot reach the broker would never start to serve, and never see `self._stop`.
            with ended_at_once(lifeline):
                tasks.start_soon(self._host, started)
                await started.wait()
            tasks.start_soon(self._watch_signals)
            tasks.start_soon(self._watch_lifeline, lifeline)
            tasks.start_soon(announce, self._bus, self.heartbeat)
            tasks.start_soon(drained_on_request, self._bus, self.heartbeat, self._drain_s, self._leave)
            await anyio.lowlevel.checkpoint()  # the signals are handled now
            end_when_unserved(self._serving)
            ready()
            await self._stop.wait()
            self._draining = True
            with self._limit:
                # The end of the supervisor may have set a shorter limit.
                self._limit.deadline = min(self._limit.deadline, anyio.current_time() + self._drain_s)
                await self._member.drain()
            tasks.cancel_scope.cancel()
        if not self._draining:
            # One of the tasks was cancelled by asyncio's ``cancel``, which ends the group in silence.
            raise _ended_by_itself()

    def _serving(self) -> bool:
        # The supervisor ends a worker that does not drain.
        return self._member.serving() or self._stop.is_set()

    async def _host(self, started: anyio.Event) -> None:
        await self._member.hosted.run(ready=started.set)
        if not self._stop.is_set():
            raise _ended_by_itself()

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(DRAIN_SIGNAL, signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                # Programs that it runs may have got the signal, too (`processes.disturbances`).
                if number == signal.SIGTERM:
                    disturbances.note()
                if number == DRAIN_SIGNAL:
                    self._stop.set()
                else:
                    with suppress(BrokenPipeError):  # without a supervisor the lifeline ends us
                        self._leave()

    async def _watch_lifeline(self, lifeline: int) -> None:
        await anyio.wait_readable(lifeline)
        self._limit.deadline = anyio.current_time() + ORPHAN_DRAIN_S
        self._stop.set()

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(
            worker=self._worker,
            kind=self._pool.kind,
            pools=list(self._member.pools),
            host=socket.gethostname(),
            pid=os.getpid(),
            started_s=self._started_s,
            capacity=self._pool.slots,
            in_use=self._member.in_use(),
            load=self._member.load(),
            draining=self._draining,
            round_trip_s=round(self._bus.round_trip_s, 3),
            places=True,
            closes_many=True,
            crashed=self._crashed,
            refused=self._bus.refused,
            detail=self._member.detail(),
            figures=self._figures(),
        )

    def _figures(self) -> Figures:
        traffic, kind = self._bus.traffic, self._pool.kind
        cpu_s, memory_bytes = process_figures()
        counted = self._member.meter.figures()
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
