"""The life of one worker process: connect, serve, announce itself, drain, leave.

When its supervisor tells it to (`gym_runtime.system.spec.DRAIN_SIGNAL`), a worker drains: it takes no new
work, finishes what is in flight within the limit, gives the rest back to the queue, and closes its
sessions. SIGTERM, SIGINT and a client's request (`gym_runtime.rpc.draining`) it only reports to its
supervisor, which knows whether the whole system stops and whose turn it is; so nothing changes however
often they come. When the pipe from its supervisor closes, a worker drains within `ORPHAN_DRAIN_S`: it must
not outlive its supervisor.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress

import anyio
import anyio.lowlevel
from gym_sandbox.processes import disturbances
from msgspec.structs import replace

from gym_runtime import clock, logs, tracing
from gym_runtime.bus.nats import NatsBus, connect
from gym_runtime.environment.blocked_loop import watching
from gym_runtime.errors import RuntimeFault
from gym_runtime.messages.figures import Count, Figures
from gym_runtime.messages.metric_names import NETWORK
from gym_runtime.rpc.announcing import announce
from gym_runtime.rpc.draining import drained_on_request
from gym_runtime.rpc.meter import process_figures
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.system.hosted_worker import HostedWorker, hosted_worker
from gym_runtime.system.patience import Patience
from gym_runtime.system.spec import DRAIN_SIGNAL, PoolSpec, SystemSpec
from gym_runtime.system.stand_in import standing_in
from gym_runtime.system.starting import ended_at_once
from gym_runtime.system.unserved import end_when_unserved
from gym_runtime.timing import ORPHAN_DRAIN_S

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
        crashed: the worker whose place it takes, if that one crashed.
        lifeline: the pipe that closes when the supervisor ends.
        ready: called once it works.
        leave: called when somebody else than the supervisor asks it to leave; it goes on until it is told.
        waiting: called with what it waits for before it can start.

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
        # Last: what the worker does at its end is traced and logged, too.
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
