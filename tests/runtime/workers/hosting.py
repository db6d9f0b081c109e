"""What the workers' tests share: services and their announcements, requests without a router."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.messages import calls
from gym_runtime.rpc.answer import Handle, Service
from gym_runtime.rpc.members import Heartbeat, announce
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_testing.background import SOON_S, Mailbox, background, hosting
from msgspec import Raw


class Worker(Protocol):
    """What every kind of worker can do."""

    async def run(self, *, ready: Callable[[], None]) -> None: ...


@asynccontextmanager
async def at_work(worker: Worker) -> AsyncGenerator[None]:
    """A worker that is ready, until the context ends."""
    async with hosting() as tasks:
        ready = anyio.Event()

        async def run() -> None:
            await worker.run(ready=ready.set)

        tasks.start_soon(run)
        with anyio.fail_after(SOON_S):
            await ready.wait()
        yield


@asynccontextmanager
async def announced(
    bus: Bus, kind: str, worker: str, pools: Sequence[str], **more: Any
) -> AsyncGenerator[None]:
    """A worker that is announced and answers, until the context ends."""
    heartbeat = Heartbeat(worker=worker, kind=kind, pools=list(pools), **more)
    ready = anyio.Event()
    async with background(lambda: announce(bus, lambda: heartbeat, ready=ready.set)):
        await ready.wait()
        yield


@asynccontextmanager
async def serving(
    bus: Bus,
    handle: Handle,
    *,
    kind: str = "model",
    worker: str = "one",
    pools: Sequence[str] = ("policy",),
    capacity: int = 8,
) -> AsyncGenerator[Service]:
    """A service that is announced."""
    service = Service(bus, kind=kind, worker=worker, pools=pools, capacity=capacity, handle=handle)
    async with at_work(service), announced(bus, kind, worker, pools, capacity=capacity):
        yield service


def request(body: object = 0, *, key: str = "", within_s: float = 60.0, **more: Any) -> calls.Request:
    return calls.Request(body=calls.pack(body), deadline_s=clock.monotonic() + within_s, key=key, **more)


async def call(bus: Bus, subject: str, asked: calls.Request | None = None) -> calls.RpcReply:
    """Ask, without a router."""
    asked = asked or request()
    return calls.decode_reply(
        await bus.request(subject, calls.encode_request(asked), deadline_s=asked.deadline_s)
    )


class Gate:
    """A handler that notes each call and holds it until `open`; cancelled calls are counted."""

    def __init__(self, worker: str = "") -> None:
        self.calls: Mailbox[calls.Request] = Mailbox()
        self.cancelled: Mailbox[calls.Request] = Mailbox()
        self._open = anyio.Event()
        self._worker = worker

    def open(self) -> None:
        self._open.set()

    async def handle(self, pool: str, asked: calls.Request, budget: RetryBudget) -> Raw:
        self.calls.put(asked)
        try:
            await self._open.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.put(asked)
            raise
        return calls.pack(self._worker or pool)
