"""Full buffers, failover, cancelled requests, order."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator

import anyio
import pytest
import uvloop
from gym_runtime.bus import connection
from gym_runtime.bus.interface import Delivery, Incoming
from gym_runtime.bus.nats import connect
from gym_runtime.bus.subjects import Names
from gym_runtime.errors import (
    ConnectionLost,
    DeadlineExceeded,
    NoWorker,
    PayloadTooLarge,
    UsageError,
)
from gym_runtime.system.private_broker import Broker
from runtime.bus.conftest import StartServer, frozen, linked
from runtime.bus.nats.links import Inbox, link_of, soon


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead broker is noticed within a second."""
    monkeypatch.setattr(connection, "PING_INTERVAL_S", 0.2)


@pytest.mark.asyncio
async def test_publish_waits_while_the_buffer_is_full_and_can_be_cancelled_there(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PENDING_BYTES", 1_000_000)
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
    monkeypatch.setattr(connection, "PENDING_BYTES", 1_000_000)
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
async def test_an_error_of_the_broker_costs_the_connection_but_not_the_client(
    broker_url: str, prefix: str
) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        link, inbox, back = link_of(bus), Inbox(), anyio.Event()
        link.watch(lambda up: back.set() if up else None)
        async with bus.serve("x", inbox):
            # It ends the connection with "-ERR 'Maximum Payload Violation'".
            link._socket.write(b"PUB x %d\r\n" % (link.max_payload + 1))
            await back.wait()
            await bus.publish("x", b"after")
            await inbox.full()


@pytest.mark.asyncio
async def test_a_receiver_that_raises_ends_nothing(broker_url: str, prefix: str) -> None:
    inbox = Inbox(2)

    def receive(incoming: Incoming) -> None:
        inbox(incoming)
        raise KeyError(incoming.subject)

    async with connect(broker_url, prefix=prefix) as bus, bus.serve("x.*", receive):
        await bus.publish("x.1", b"")
        await bus.publish("x.2", b"")
        assert [incoming.subject for incoming in await inbox.full()] == ["x.1", "x.2"]


@pytest.mark.asyncio
async def test_a_cancelled_request_leaves_nothing_behind(broker_url: str, prefix: str) -> None:
    inbox = Inbox()
    async with connect(broker_url, prefix=prefix) as bus, bus.serve("x", inbox):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: bus.request("x", b"", deadline_s=soon()))
            incoming = (await inbox.full())[0]
            tasks.cancel_scope.cancel()
        assert not len(link_of(bus)._requests)
        await bus.publish(incoming.reply, b"too late")
        with pytest.raises(DeadlineExceeded):
            await bus.request("x", b"", deadline_s=soon(0.05))
        assert not len(link_of(bus)._requests)


@pytest.mark.asyncio
async def test_a_cancelled_ping_does_not_end_the_reading(broker_url: str, prefix: str) -> None:
    inbox = Inbox()
    async with connect(broker_url, prefix=prefix) as bus, bus.serve("x", inbox):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await link_of(bus).settle()
        await link_of(bus).settle()
        await bus.publish("x", b"")
        await inbox.full()


@pytest.mark.asyncio
async def test_a_ping_that_was_never_sent_is_not_sent_after_a_restart(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PENDING_BYTES", 1_000_000)
    async with connect(broker.url) as bus, anyio.create_task_group() as tasks:
        link, back = link_of(bus), anyio.Event()
        link.watch(lambda up: back.set() if up else None)
        with frozen(broker.pid):
            with anyio.move_on_after(0.2):
                while True:
                    await bus.publish("x", b"x" * 200_000)
            tasks.start_soon(link.settle)
            await anyio.wait_all_tasks_blocked()
            assert link._outgoing.pings_due == 1
            os.kill(broker.pid, signal.SIGKILL)
        broker.restart()
        await back.wait()
        assert link._outgoing.pings_due == 0
        assert not link._outgoing.pongs


async def _five_thousand_in_order(url: str, prefix: str) -> None:
    inbox = Inbox(5000)
    async with (
        connect(url, prefix=prefix) as receiver,
        connect(url, prefix=prefix) as sender,
        receiver.serve("x.*", inbox),
    ):
        for number in range(5000):
            await sender.publish(f"x.{number}", b"%d" % number * 100, headers={"n": str(number)})
        for number, incoming in enumerate(await inbox.full()):
            assert incoming == Incoming(f"x.{number}", b"%d" % number * 100, "", {"n": str(number)})


@pytest.mark.asyncio
async def test_five_thousand_messages_arrive_in_order(broker_url: str, prefix: str) -> None:
    await _five_thousand_in_order(broker_url, prefix)


def test_five_thousand_messages_arrive_in_order_on_uvloop(broker_url: str, prefix: str) -> None:
    uvloop.run(_five_thousand_in_order(broker_url, prefix))


@pytest.mark.asyncio
async def test_prefixes_do_not_hear_each_other(broker_url: str, prefix: str) -> None:
    async with (
        connect(broker_url, prefix=prefix) as ours,
        connect(broker_url, prefix=f"{prefix}.b") as theirs,
    ):
        async with ours.serve("x", lambda _: None):
            with pytest.raises(NoWorker):
                await theirs.request("x", b"", deadline_s=soon())
        assert await ours.commit("rollout.r.1", b"")
        assert await theirs.commit("rollout.r.1", b"")


@pytest.mark.parametrize("subject", ["", "a b", "a..b", "a.*", ">", "a\r\nPUB x 0", "x" * 2000, ".a"])
def test_subjects_that_are_none_are_refused(subject: str) -> None:
    with pytest.raises(UsageError):
        Names("gym").subject(subject)


@pytest.mark.parametrize("pattern", ["", "a b", "a.>.b", "a>", "*a"])
def test_patterns_that_are_none_are_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        Names("gym").pattern(pattern)


def test_consumer_names_stay_apart() -> None:
    names = ["a.b", "a_b", "a b", "a=2e=b", "a-b"]
    assert len({Names.consumer(name) for name in names}) == len(names)
    assert Names.consumer("tool_loop-1") == "tool_loop-1"


@pytest.mark.asyncio
async def test_a_request_in_flight_fails_at_once_when_the_broker_dies(broker: Broker) -> None:
    async with connect(broker.url) as bus:
        asked = anyio.Event()

        async def ask() -> None:
            with pytest.raises(ConnectionLost):
                await bus.request("silent", b"", deadline_s=soon(15))

        async with bus.serve("silent", lambda _: asked.set()), anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await asked.wait()
            os.kill(broker.pid, signal.SIGKILL)


@pytest.mark.asyncio
async def test_a_request_while_disconnected_waits_for_the_broker_but_not_beyond_its_deadline(
    broker: Broker,
) -> None:
    async with connect(broker.url) as bus, anyio.create_task_group() as tasks:

        def echo(incoming: Incoming) -> None:
            tasks.start_soon(bus.publish, incoming.reply, incoming.payload)

        down = anyio.Event()
        link_of(bus).watch(lambda up: None if up else down.set())
        async with bus.serve("echo", echo):
            broker.stop()
            await down.wait()
            with pytest.raises(DeadlineExceeded):
                await bus.request("echo", b"1", deadline_s=soon(0.1))
            broker.restart()
            assert await bus.request("echo", b"2", deadline_s=soon()) == b"2"
