"""Mailboxes, servers and pools, for the contract of a bus."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
from gym_runtime import clock
from gym_runtime.bus.interface import (
    Bus,
    Delivery,
    Incoming,
    Record,
)
from gym_runtime.bus.pull import Slots

if TYPE_CHECKING:
    pass


T = TypeVar("T")


SOON_S = 15.0
"""How long anything may take that is promised to happen; reached only by a failing test."""


ACK_WAIT_S = 1.5


EVERY_BYTE = bytes(range(256)) + b"\r\n\r\nMSG x 1 5\r\n"


class Mailbox(Generic[T]):
    """Takes things and lets one wait for them."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._arrived = anyio.Event()

    def put(self, item: T) -> None:
        self.items.append(item)
        self._arrived.set()

    async def until(self, count: int) -> list[T]:
        """All items, once there are at least ``count``."""
        with anyio.fail_after(SOON_S):
            while len(self.items) < count:
                self._arrived = anyio.Event()
                await self._arrived.wait()
        return self.items


@asynccontextmanager
async def background(*works: Callable[[], Awaitable[Any]]) -> AsyncGenerator[None]:
    """Run something until the context ends."""
    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(work)
        yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def answering(
    bus: Bus, subject: str, answer: Callable[[Incoming], bytes], *, queue: str = ""
) -> AsyncGenerator[None]:
    """Serve a subject with a function."""
    async with anyio.create_task_group() as tasks:

        def receive(incoming: Incoming) -> None:
            tasks.start_soon(bus.publish, incoming.reply, answer(incoming))

        async with bus.serve(subject, receive, queue=queue):
            yield


def silent(incoming: Incoming) -> None:
    """A subscriber that does nothing."""


async def ask(
    bus: Bus, subject: str, payload: bytes = b"", *, within_s: float = SOON_S, **options: Any
) -> bytes:
    return await bus.request(subject, payload, deadline_s=clock.monotonic() + within_s, **options)


async def take(bus: Bus, pattern: str, count: int, *, after: int = 0) -> list[Record]:
    """The first ``count`` records of a pattern."""
    found: list[Record] = []
    with anyio.fail_after(SOON_S):
        async with aclosing(bus.records(pattern, after=after)) as records:
            async for record in records:
                found.append(record)
                if len(found) == count:
                    break
    return found


class Pool:
    """Pullers whose handlers note each delivery and wait until they are told how to end it."""

    def __init__(self) -> None:
        self.deliveries: Mailbox[Delivery] = Mailbox()
        self.running = 0
        self.most = 0
        self._go = anyio.Event()

    def go(self) -> None:
        """Let all handlers end."""
        self._go.set()

    async def hold(self, delivery: Delivery) -> None:
        """A handler: waits for `go`, then acks."""
        self.running += 1
        self.most = max(self.most, self.running)
        self.deliveries.put(delivery)
        try:
            await self._go.wait()
            await delivery.ack()
        finally:
            self.running -= 1

    async def ack(self, delivery: Delivery) -> None:
        """A handler: acks at once."""
        self.deliveries.put(delivery)
        await delivery.ack()

    async def first(self, count: int) -> list[Delivery]:
        return await self.deliveries.until(count)


def pulling(
    bus: Bus,
    handle: Callable[[Delivery], Awaitable[None]],
    *,
    pattern: str = "task.>",
    consumer: str = "workers",
    slots: int | Slots = 4,
    ack_wait_s: float = ACK_WAIT_S,
    **more: Any,
) -> Any:
    """Pull until the context ends."""
    how: dict[str, Any] = {"slots": slots, "handle": handle, "ack_wait_s": ack_wait_s, **more}
    return background(partial(bus.pull, pattern, consumer=consumer, **how))
