"""Full buffers and closing connections."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator

import anyio
import pytest
from freezing import frozen
from gym_runtime.bus import link as links
from gym_runtime.bus import sending
from gym_runtime.bus.interface import Delivery, Incoming
from gym_runtime.bus.nats import connect
from gym_runtime.errors import ConnectionLost, DeadlineExceeded, PayloadTooLarge
from gym_runtime.messages import calls
from gym_runtime.messages.responses import NULL
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.members import Heartbeat
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.system.private_broker import Broker
from msgspec import Raw
from runtime.bus.conftest import StartServer, linked
from runtime.bus.nats.links import Inbox, link_of, soon


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead broker is noticed within a second."""
    monkeypatch.setattr(links, "PING_INTERVAL_S", 0.2)


@pytest.mark.asyncio
async def test_publish_waits_while_the_buffer_is_full_and_can_be_cancelled_there(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "PENDING_BYTES", 1_000_000)
    published = 0
    async with connect(broker.url) as bus:
        with frozen(broker.pid), anyio.move_on_after(0.4) as scope:
            while True:
                await bus.publish("x", b"x" * 200_000)
                published += 1
        assert scope.cancelled_caught
        assert 1_000_000 < published * 200_000 < 100_000_000
        # Thawed, it goes on.
        await bus.publish("x", b"x")


@pytest.mark.asyncio
async def test_a_full_buffer_does_not_outlast_a_requests_deadline(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "PENDING_BYTES", 1_000_000)
    async with connect(broker.url) as bus:
        with frozen(broker.pid):
            with anyio.move_on_after(0.2):
                while True:
                    await bus.publish("x", b"x" * 200_000)
            with pytest.raises(DeadlineExceeded):
                await bus.request("x", b"", deadline_s=soon(0.2))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_failover_leaves_a_frozen_broker_with_unsent_bytes_and_fails_what_is_in_flight(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    pids = dict(start_server("") for _ in range(2))
    async with linked(*pids) as link:
        first = link.url
        back = anyio.Event()
        link.watch(lambda up: back.set() if up else None)
        link.listen("never", lambda *_: None)
        raised: list[Exception] = []

        async def ask() -> None:
            try:
                await link.ask("never", b"", within_s=15)
            except ConnectionLost as error:
                raised.append(error)

        with frozen(pids[first]):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                for _ in range(20):
                    await link.send("x", b"x" * 500_000)
                await back.wait()
        assert raised
        assert link.url != first
        await link.settle()


@pytest.mark.asyncio
async def test_closing_fails_what_is_in_flight_at_once(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        asked = anyio.Event()

        async def ask() -> None:
            with pytest.raises(ConnectionLost):
                await bus.request("silent", b"", deadline_s=soon(15))

        async with bus.serve("silent", lambda _: asked.set()), anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await asked.wait()
            await bus.aclose()
        with pytest.raises(ConnectionLost):
            await bus.publish("x", b"")
        with pytest.raises(ConnectionLost):
            await bus.commit("rollout.r.1", b"")


@pytest.mark.asyncio
async def test_closing_ends_what_would_wait_for_ever(broker_url: str, prefix: str) -> None:
    async def handle(delivery: Delivery) -> None:
        started.set()
        await anyio.sleep_forever()

    async def pull() -> None:
        with pytest.raises(ConnectionLost):
            await bus.pull("task.a.*", consumer="a", slots=1, handle=handle)

    async def take(items: AsyncIterator[object], taken: anyio.Event) -> None:
        await anext(items)
        taken.set()
        with pytest.raises(ConnectionLost):
            await anext(items)

    started, read_one = anyio.Event(), anyio.Event()
    async with connect(broker_url, prefix=prefix) as bus, anyio.create_task_group() as tasks:
        await bus.enqueue("task.a.1", b"")
        await bus.append("runs.1", b"")
        tasks.start_soon(pull)
        tasks.start_soon(take, bus.records("runs.>"), read_one)
        for event in (started, read_one):
            await event.wait()
        await bus.aclose()


@pytest.mark.asyncio
async def test_closing_sends_what_is_buffered(broker_url: str, prefix: str) -> None:
    inbox = Inbox(1000)
    async with connect(broker_url, prefix=prefix) as listener, listener.serve("x", inbox):
        async with connect(broker_url, prefix=prefix) as bus:
            for number in range(1000):
                await bus.publish("x", b"%d" % number)
        assert [int(incoming.payload) for incoming in await inbox.full()] == list(range(1000))


@pytest.mark.asyncio
async def test_headers_count_against_the_limit_and_the_connection_survives(
    broker_url: str, prefix: str
) -> None:
    inbox = Inbox()
    async with connect(broker_url, prefix=prefix) as bus, bus.serve("x", inbox):
        with pytest.raises(PayloadTooLarge, match="of headers"):
            await bus.publish("x", b"", headers={"a": "b" * link_of(bus).max_payload})
        await bus.publish("x", b"small")
        await inbox.full()


@pytest.mark.asyncio
async def test_a_large_request_is_held_once_while_its_answer_is_awaited(broker_url: str, prefix: str) -> None:
    size = 8 * 2**20
    item = Raw(b'"' + b"x" * size + b'"')
    replies = Inbox()

    def note(incoming: Incoming) -> None:
        replies(incoming.reply)

    async with connect(broker_url, prefix=prefix) as bus, bus.serve("model.policy.one", note):
        router = Router(bus, watches=False)
        router.members.learn(Heartbeat(worker="one", kind="model", pools=["policy"]))
        asking = calls.Request(body=calls.ModelCall(params=NULL, input=[item]), deadline_s=soon())
        tracemalloc.start()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(router.ask, "model", "policy", asking, RetryBudget())
                (reply,) = await replies.full()
                # What the socket has not sent yet is not counted: the answer of a later ping comes after it.
                await link_of(bus).settle()
                held_bytes, _ = tracemalloc.get_traced_memory()
                await bus.publish(reply, calls.encode(calls.RpcReply(worker="one")))
        finally:
            tracemalloc.stop()
    # The item itself is older than the measurement.
    assert held_bytes < size / 4
