"""Workers and a router on a bus in virtual time."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import anyio
from anyio.abc import TaskGroup
from gym_runtime.messages import calls
from gym_runtime.rpc.actors import RoutedReply
from gym_runtime.rpc.answer import Handle, Service
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.members import Heartbeat, announce
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_testing.background import settled
from gym_testing.memory import MemoryBroker, MemoryBus
from msgspec import Raw
from runtime.workers.hosting import request


class Cluster:
    """A router, and workers with connections of their own."""

    def __init__(
        self,
        broker: MemoryBroker,
        connections: AsyncExitStack,
        tasks: TaskGroup,
        bus: MemoryBus,
        router: Router,
    ) -> None:
        self.broker = broker
        self.bus = bus
        self.router = router
        self._connections = connections
        self._tasks = tasks

    async def add(
        self, name: str, handle: Handle, *, capacity: int = 8, kind: str = "model", known: bool = True
    ) -> MemoryBus:
        """A worker that the router knows."""
        bus = await self._connections.enter_async_context(self.broker.connect(name))
        service = Service(bus, kind=kind, worker=name, pools=["policy"], capacity=capacity, handle=handle)
        ready = anyio.Event()
        self._tasks.start_soon(lambda: service.run(ready=ready.set))
        await ready.wait()
        if known:
            presence = Heartbeat(worker=name, kind=kind, pools=["policy"], capacity=capacity)
            self._tasks.start_soon(announce, bus, lambda: presence)
            await settled(lambda: self.router.views[kind].knows(name))
        return bus

    async def ask(
        self, budget: RetryBudget | None = None, *, kind: str = "model", **more: Any
    ) -> RoutedReply:
        return await self.router.ask(kind, "policy", request(**more), budget or RetryBudget())

    async def ask_session(self, worker: str, budget: RetryBudget | None = None, **more: Any) -> RoutedReply:
        return await self.router.ask_session("policy", worker, request(**more), budget or RetryBudget())


def naming(worker: str) -> Handle:
    """A handler that answers at once."""

    async def handle(pool: str, asked: calls.Request, budget: RetryBudget) -> Raw:
        return calls.pack(worker)

    return handle
