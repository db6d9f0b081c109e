"""Workers are told of several sessions at once, where they understand it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.lowlevel import checkpoint
from gym_runtime.bus.interface import Incoming
from gym_runtime.messages import calls
from gym_runtime.rpc.closings import CLOSED_AT_ONCE, CLOSED_TOGETHER_S, Closings
from gym_runtime.rpc.members import Heartbeat
from gym_runtime.rpc.registry import WorkerRegistry
from gym_testing.background import Mailbox
from gym_testing.memory import MemoryBroker

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


@asynccontextmanager
async def telling(*, closes_many: bool) -> AsyncGenerator[tuple[Closings, Mailbox[list[str]]]]:
    """The closings of an agent worker, and the sessions in each message that a worker ``one`` gets."""
    told: Mailbox[list[str]] = Mailbox()
    view = WorkerRegistry("resource")
    view.learn(Heartbeat(worker="one", kind="resource", pools=["shop"], closes_many=closes_many))

    def receive(incoming: Incoming) -> None:
        call = calls.decode_resource_call(calls.decode_request(incoming.payload).body)
        assert isinstance(call, calls.CloseSession)
        told.put([call.session, *call.more])

    broker = MemoryBroker()
    async with (
        broker.connect("agent") as bus,
        broker.connect("one") as worker,
        worker.serve("resource.shop.one", receive),
        anyio.create_task_group() as tasks,
    ):
        closings = Closings(bus, {"resource": view})
        tasks.start_soon(closings.run)
        await checkpoint()
        yield closings, told
        tasks.cancel_scope.cancel()


async def test_sessions_that_end_together_are_one_message() -> None:
    async with telling(closes_many=True) as (closings, told):
        for name in ("a", "b", "c"):
            await closings.add("shop", "one", name)
        assert await told.until(1) == [["a", "b", "c"]]
        await anyio.sleep(10 * CLOSED_TOGETHER_S)
        await closings.add("shop", "one", "d")
        assert await told.until(2) == [["a", "b", "c"], ["d"]]


async def test_a_worker_of_an_older_version_is_told_of_each_at_once() -> None:
    async with telling(closes_many=False) as (closings, told):
        for name in ("a", "b"):
            await closings.add("shop", "one", name)
        assert await told.until(2) == [["a"], ["b"]]


async def test_what_waits_when_it_is_stopped_is_sent_and_so_is_what_comes_later() -> None:
    async with telling(closes_many=True) as (closings, told):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(closings.run)
            await checkpoint()
            await closings.add("shop", "one", "a")
            tasks.cancel_scope.cancel()
        assert await told.until(1) == [["a"]]
        await closings.add("shop", "one", "b")
        assert await told.until(2) == [["a"], ["b"]]


async def test_one_message_has_a_limit() -> None:
    names = [str(number) for number in range(CLOSED_AT_ONCE + 1)]
    async with telling(closes_many=True) as (closings, told):
        for name in names:
            await closings.add("shop", "one", name)
        assert await told.until(2) == [names[:CLOSED_AT_ONCE], names[CLOSED_AT_ONCE:]]
