"""What the bus rests on in nats-py, shown with nats-py alone. When one fails, read `gym_runtime.bus.link`.

The first tests are what the link uses, the last ones what it works around (`nats_py_defects.md`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, FlushTimeoutError
from runtime.bus.conftest import StartServer
from runtime.bus.test_handshake import INFO, saying

pytestmark = pytest.mark.asyncio

AS_THE_LINK = {
    "allow_reconnect": False,
    "pending_size": 0,
    "flusher_queue_size": 1,
    "max_reconnect_attempts": 1,
    "reconnect_time_wait": 0,
}


@asynccontextmanager
async def client(url: str, **options: Any) -> AsyncGenerator[Client]:
    one = Client()
    await one.connect([url], **AS_THE_LINK, **options)
    try:
        yield one
    finally:
        await one.close()


class Sink(asyncio.Future[Msg]):
    """Gets every message."""

    def __init__(self, take: Callable[[Msg], object]) -> None:
        super().__init__()
        self._take = take

    def set_result(self, message: Msg, /) -> None:
        self._take(message)


async def test_the_future_of_a_subscription_gets_every_message_in_order(broker_url: str) -> None:
    got: list[bytes] = []
    async with client(broker_url) as one:
        await one.subscribe("canary.future", future=Sink(lambda message: got.append(message.data)))
        for number in range(2000):
            await one.publish("canary.future", b"%d" % number)
        with anyio.fail_after(10):
            while len(got) < 2000:
                await anyio.sleep(0.01)
    assert got == [b"%d" % number for number in range(2000)]


async def test_publish_waits_for_nothing_without_a_limit_on_what_is_pending(broker_url: str) -> None:
    async with client(broker_url) as one:
        for _ in range(50):
            publishing = one.publish("canary.publish", b"x" * 1_000_000, headers={"a": "b"})
            with pytest.raises(StopIteration):
                publishing.send(None)
        assert one.pending_data_size > 50_000_000


async def test_a_status_comes_as_headers(broker_url: str) -> None:
    got = asyncio.Queue[Msg]()
    async with client(broker_url) as one:
        await one.subscribe("canary.inbox", future=Sink(got.put_nowait))
        await one.publish("canary.nobody", b"", reply="canary.inbox")
        await one.publish("canary.inbox", b"", headers={"Name": " value "})
        with anyio.fail_after(10):
            headers = (await got.get()).headers
            assert headers is not None
            assert headers["Status"] == "503"
            assert (await got.get()).headers == {"Name": "value"}


async def test_what_the_broker_refuses_is_told_in_small_letters_and_names_the_subject(
    start_server: StartServer,
) -> None:
    url, _ = start_server(
        'authorization { users: [{ user: u, password: p, permissions: { publish: "X" } }] }'
    )
    said = asyncio.Queue[str]()

    async def failed(error: Exception) -> None:
        said.put_nowait(str(error))

    async with client(url.replace("//", "//u:p@"), error_cb=failed) as one:
        await one.publish("No.Way", b"")
        with anyio.fail_after(10):
            assert await said.get() == 'nats: permissions violation for publish to "no.way"'
        assert one.is_connected


async def drained(url: str, fill: bool) -> int:
    """How many of 20,000 messages to a queue of two members are lost when one of them leaves."""
    got: list[bytes] = []
    async with client(url) as sender, client(url) as one, client(url) as other:
        leaving = await one.subscribe("canary.q", "q", future=Sink(lambda message: got.append(message.data)))
        await other.subscribe("canary.q", "q", future=Sink(lambda message: got.append(message.data)))
        await one.flush()
        await other.flush()
        for number in range(20_000):
            await sender.publish("canary.q", b"%d" % number)
            if number == 10_000:
                await anyio.lowlevel.checkpoint()
        if fill:
            await one.publish("canary.nowhere", b"")
        await leaving.drain()
        await sender.flush()
        await other.flush()
        with anyio.move_on_after(1.0):
            while len(got) < 20_000:
                await anyio.sleep(0.01)
    return 20_000 - len(set(got))


async def test_a_drain_loses_nothing_when_the_queue_of_flushes_is_full(start_server: StartServer) -> None:
    url, _ = start_server("")
    for _ in range(3):
        assert await drained(url, fill=True) == 0


async def test_a_callable_password_is_asked_for_where_the_server_demands_no_tls() -> None:
    asked: list[str] = []

    def tell() -> str:
        asked.append("password")
        raise PermissionError

    async with saying(INFO) as (host, heard):
        one = Client()
        with pytest.raises(PermissionError):
            await one.connect([f"tls://{host}"], user="me", password=tell, **AS_THE_LINK)  # type: ignore[arg-type]
        assert asked
        assert not heard
        await one.close()


# -- defects


async def order_of() -> list[bytes]:
    """What the broker reads when a subscription is made, something is published, and all is flushed."""
    async with saying(INFO, b"PONG\r\n") as (host, heard):
        one = Client()
        await one.connect([f"nats://{host}"], **AS_THE_LINK)
        await one.subscribe("a", future=Sink(print))
        await one.publish("b", b"")
        with suppress(FlushTimeoutError):
            await one.flush(1)
        await one.close()
    lines = bytes(heard).split(b"\r\n")
    return [line.split()[0] for line in lines[2:] if line]


@pytest.mark.slow
async def test_defect_a_flush_sends_its_ping_before_what_is_pending() -> None:
    assert await order_of() == [b"PING", b"SUB", b"PUB"]


async def test_defect_the_late_pong_of_a_flush_that_was_cancelled_ends_the_reading(
    broker_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "nats.aio.client")
    got: list[Msg] = []
    async with client(broker_url) as one:
        await one.subscribe("canary.late", future=Sink(got.append))
        await one.flush()
        with anyio.move_on_after(0) as scope:
            await one.flush()
        assert scope.cancelled_caught
        await one.publish("canary.late", b"")
        with anyio.move_on_after(0.3):
            while not got:
                await anyio.sleep(0.01)
        assert not got
        assert one.is_connected


async def test_defect_a_line_before_the_first_pong_leaves_a_client_that_never_connects() -> None:
    async with saying(INFO, INFO) as (host, _):
        one = Client()
        await one.connect([f"nats://{host}"], **AS_THE_LINK)
        assert one.is_connecting
        await one.close()


async def test_defect_a_tls_url_does_not_keep_a_password_from_a_server_without_tls() -> None:
    async with saying(INFO, b"-ERR 'x'\r\n") as (host, heard):
        one = Client()
        with suppress(Error):
            await one.connect([f"tls://{host}"], user="me", password="secret", **AS_THE_LINK)
        await one.close()
        assert b"secret" in heard
