"""Errors of the broker and of receivers, cancelled requests, a broker that dies."""

from __future__ import annotations

import os
import signal

import anyio
import anyio.lowlevel
import pytest
from freezing import frozen
from gym_runtime.bus import link as links
from gym_runtime.bus import sending, stream_reader
from gym_runtime.bus.interface import Incoming
from gym_runtime.bus.nats import connect
from gym_runtime.errors import (
    ConnectionLost,
    DeadlineExceeded,
)
from gym_runtime.system.private_broker import Broker
from runtime.bus.nats.links import Inbox, link_of, soon
from structlog.testing import capture_logs


@pytest.mark.asyncio
async def test_an_error_of_the_broker_costs_the_connection_but_not_the_client(
    broker_url: str, prefix: str
) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        link, inbox, back = link_of(bus), Inbox(), anyio.Event()
        link.watch(lambda up: back.set() if up else None)
        async with bus.serve("x", inbox):
            # It ends the connection with "-ERR 'Maximum Payload Violation'"; nats-py does not count headers.
            assert link._client is not None
            await link._client.publish("x", b"", headers={"a": "b" * link.max_payload})
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
async def test_a_settle_that_the_broker_never_heard_of_ends_with_the_connection(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "PENDING_BYTES", 1_000_000)
    async with connect(broker.url) as bus, anyio.create_task_group() as tasks:
        link, back, settled = link_of(bus), anyio.Event(), anyio.Event()
        link.watch(lambda up: back.set() if up else None)

        async def settle() -> None:
            await link.settle()
            settled.set()

        with frozen(broker.pid):
            with anyio.move_on_after(0.2):
                while True:
                    await bus.publish("x", b"x" * 200_000)
            tasks.start_soon(settle)
            await anyio.wait_all_tasks_blocked()
            os.kill(broker.pid, signal.SIGKILL)
        await settled.wait()
        broker.restart()
        await back.wait()
        await link.settle()


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


@pytest.mark.slow
@pytest.mark.asyncio
async def test_one_line_of_the_log_says_that_the_broker_is_away(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "AWAY_S", 0.1)
    monkeypatch.setattr(links, "RECONNECT_S", (0.05, 0.05))
    with capture_logs() as lines:
        async with connect(broker.url) as bus:
            link, back, said = link_of(bus), anyio.Event(), list[str]()
            link.watch(lambda up: back.set() if up else None)
            broker.stop()
            while said.count("not reconnected") < 8:
                await anyio.sleep(0.01)
                said = [line["event"] for line in lines]
            assert said.count("the broker is away; waiting for it") == 1
            broker.restart()
            await back.wait()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_reader_that_the_end_of_the_broker_met_in_a_question_waits_until_it_is_back(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "PATIENCE_S", 0.5)
    monkeypatch.setattr(stream_reader, "EPHEMERAL_S", 0.1)
    async with connect(broker.url) as bus, anyio.create_task_group() as tasks:
        down, ended, found = anyio.Event(), anyio.Event(), list[bytes]()
        link_of(bus).watch(lambda up: None if up else down.set())
        await bus.append("journal.1", b"kept")

        async def read() -> None:
            try:
                async for record in bus.records("journal.*"):
                    found.append(record.payload)
                    break
            finally:
                ended.set()

        with frozen(broker.pid):
            tasks.start_soon(read)
            while not len(link_of(bus)._requests):
                await anyio.lowlevel.checkpoint()
            os.kill(broker.pid, signal.SIGKILL)
        await down.wait()
        with anyio.move_on_after(1.5):  # three times its patience
            await ended.wait()
        assert not ended.is_set()
        broker.restart()
        await ended.wait()
    assert found == [b"kept"]


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
