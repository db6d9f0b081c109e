"""Connections of the memory bus: frozen, cut, ended."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest
from gym_runtime.bus.interface import Delivery, Incoming
from gym_runtime.errors import BrokerError, ConnectionLost, UsageError
from gym_testing.memory import Fate, MemoryBroker
from testing.memory.fault_script import Script

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_frozen_nothing_passes_and_nothing_is_lost() -> None:
    broker = MemoryBroker()
    seen: list[bytes] = []
    async with (
        broker.connect() as bus,
        broker.connect() as other,
        other.serve("a", lambda incoming: seen.append(incoming.payload)),
        bus.serve("b", lambda incoming: seen.append(incoming.payload)),
    ):
        other.freeze()
        for number in range(3):
            await bus.publish("a", b"a%d" % number)
            await other.publish("b", b"b%d" % number)
        await anyio.sleep(3600)
        assert seen == []
        other.thaw()
        await anyio.sleep(1)
    assert sorted(seen) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    assert [payload for payload in seen if payload.startswith(b"a")] == [b"a0", b"a1", b"a2"]


async def test_cut_what_was_on_its_way_in_is_lost_and_what_goes_out_waits() -> None:
    broker = MemoryBroker(faults=Script(signal=[Fate(delay_s=5)]))
    seen: list[bytes] = []
    async with (
        broker.connect() as bus,
        broker.connect() as other,
        other.serve("a", lambda incoming: seen.append(incoming.payload)),
        bus.serve("b", lambda incoming: seen.append(incoming.payload)),
    ):
        await bus.publish("a", b"lost")
        other.cut()
        await bus.publish("a", b"never sent")
        await other.publish("b", b"waits")
        await anyio.sleep(1)
        other.mend()
        await anyio.sleep(60)
    assert seen == [b"waits"]


async def test_a_store_waits_a_minute_for_the_connection() -> None:
    async with MemoryBroker().connect() as bus:
        bus.cut()
        with pytest.raises(BrokerError):
            await bus.enqueue("task.a", b"")
        assert anyio.current_time() == 60


async def test_everything_ends_with_the_connection() -> None:
    broker = MemoryBroker()
    ended: list[str] = []

    async def ends(name: str, work: Callable[[], Awaitable[Any]]) -> None:
        with pytest.raises(ConnectionLost):
            await work()
        ended.append(name)

    async def drain(items: AsyncGenerator[Any]) -> None:
        async for _ in items:
            pass

    async def handle(delivery: Delivery) -> None:
        await anyio.sleep_forever()

    async with broker.connect() as bus, anyio.create_task_group() as tasks:
        await bus.enqueue("task.a", b"")
        pull = partial(bus.pull, "task.>", consumer="c", slots=2, handle=handle)
        tasks.start_soon(ends, "pull", pull)
        tasks.start_soon(ends, "records", partial(drain, bus.records("journal.>")))
        await anyio.sleep(1)
        await bus.aclose()
        await ends("publish", partial(bus.publish, "a", b""))
        await ends("enqueue", partial(bus.enqueue, "task.a", b""))
    assert sorted(ended) == ["enqueue", "publish", "pull", "records"]
    async with broker.connect() as bus:
        delivered: list[int] = []

        async def note(delivery: Delivery) -> None:
            delivered.append(delivery.deliveries)
            await delivery.ack()

        with anyio.move_on_after(60):
            await bus.pull("task.>", consumer="c", slots=2, handle=note)
        assert delivered == [2]


async def test_names_of_connections() -> None:
    broker = MemoryBroker()
    async with broker.connect("agent-1") as bus, broker.connect() as other:
        assert (bus.name, other.name) == ("agent-1", "bus-2")
        assert broker["agent-1"] is bus
        with pytest.raises(UsageError, match="agent-1"):
            async with broker.connect("agent-1"):
                pass
    async with broker.connect("agent-1"):
        pass


async def test_a_subscribers_bug_ends_nothing() -> None:
    seen: list[bytes] = []

    def receive(incoming: Incoming) -> None:
        seen.append(incoming.payload)
        raise ValueError("a bug")

    async with MemoryBroker().connect() as bus, bus.serve("a", receive):
        await bus.publish("a", b"1")
        await bus.publish("a", b"2")
        await anyio.sleep(1)
    assert seen == [b"1", b"2"]


async def test_subscribers_do_not_run_in_their_senders_context() -> None:
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")
    seen: list[str] = []
    async with MemoryBroker().connect() as bus, bus.serve("a", lambda incoming: seen.append(whose.get())):
        whose.set("the sender's")
        await bus.publish("a", b"")
        await anyio.sleep(1)
    assert seen == ["nobody's"]


async def test_receivers_share_no_headers() -> None:
    seen: list[dict[str, str]] = []

    def receive(incoming: Incoming) -> None:
        assert isinstance(incoming.headers, dict)
        seen.append(dict(incoming.headers))
        incoming.headers.clear()

    sent = {"k": " v "}
    async with MemoryBroker().connect() as bus, bus.serve("a", receive), bus.serve("*", receive):
        await bus.publish("a", b"", headers=sent)
        sent["k"] = "changed"
        await anyio.sleep(1)
    assert seen == [{"k": "v"}, {"k": "v"}]
