"""What waits to be sent, against servers that answer as the test says."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from gym_runtime.bus.receiving import Subscriptions
from gym_runtime.bus.sending import WINDOW_BYTES, Message, Sending
from nats.aio.client import Client
from runtime.bus.test_handshake import INFO, saying
from runtime.bus.test_nats_py import client

pytestmark = pytest.mark.asyncio

PIECE = b"x" * 200_000


@asynccontextmanager
async def silent() -> AsyncGenerator[tuple[Client, bytearray]]:
    """A client of a server that reads, greets, and sends nothing back."""
    async with saying(INFO, b"PONG\r\n") as (host, heard), client(f"nats://{host}") as one:
        yield one, heard


async def until(heard: bytearray, end: bytes) -> None:
    with anyio.fail_after(10):
        while not heard.endswith(end):
            await anyio.sleep(0.01)


async def test_no_more_is_under_way_than_the_window_however_fast_the_socket_takes_it() -> None:
    async with silent() as (one, heard):
        sending = Sending("echo", lambda: None)
        sending.attach(one)
        for number in range(100):
            sending.add(Message(f"s.{number}", PIECE), len(PIECE))
        assert sending.crowded
        sent = 100 - sending.waiting_bytes // len(PIECE)
        assert WINDOW_BYTES <= sent * len(PIECE) < WINDOW_BYTES + len(PIECE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sending.run)
            await anyio.wait_all_tasks_blocked()
            assert sending.waiting_bytes == (100 - sent) * len(PIECE)
            while sending.waiting_bytes:
                before = sending.waiting_bytes
                sending.echoed()
                with anyio.fail_after(10):
                    while sending.waiting_bytes == before:
                        await anyio.lowlevel.checkpoint()
            await until(heard, b"PUB s.99  200000\r\n" + PIECE + b"\r\nPUB echo  0\r\n\r\n")
            tasks.cancel_scope.cancel()
        order = [int(part.split()[0]) for part in bytes(heard).split(b"PUB s.")[1:]]
        assert order == list(range(100))


async def test_what_waits_is_sent_by_the_next_client_and_echoes_end_with_the_last_one() -> None:
    async with silent() as (first, _), silent() as (second, heard):
        sending = Sending("echo", lambda: None)
        sending.add(Message("early", b""), 5)
        sending.attach(first)
        sending.change(lambda client: client.subscribe("changed"))
        echo = sending.echo()
        assert not echo.done()
        sending.detach()
        assert echo.done()
        sending.add(Message("late", b""), 4)
        sending.attach(second)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sending.run)
            await until(heard, b"PUB early  0\r\n\r\nPUB late  0\r\n\r\n")
            tasks.cancel_scope.cancel()
        assert b"changed" not in heard


async def test_a_client_that_is_closed_is_reported_and_ends_nothing_else() -> None:
    async with silent() as (one, _):
        lost: list[bool] = []
        sending = Sending("echo", lambda: lost.append(True))
        sending.attach(one)
        await one.close()
        sending.change(lambda client: client.subscribe("x"))
        with anyio.fail_after(10):
            await sending.run()
        assert lost == [True]
        sending.detach()
        sending.attach(one)
        sending.add(Message("x", b""), 1)
        assert lost == [True, True]


async def test_what_is_sent_after_a_subscription_was_muted_comes_after_its_end() -> None:
    async with silent() as (one, heard), anyio.create_task_group() as tasks:
        sending = Sending("echo", lambda: None)
        subscriptions = Subscriptions(sending.change, lambda: None, nowhere="nowhere")
        tasks.start_soon(subscriptions.run)
        sending.attach(one)
        sid = subscriptions.add("tasks", lambda subject, reply, headers, payload: None, "")
        subscriptions.mute(sid)
        sending.add(Message("given.back", b""), 10)
        tasks.start_soon(sending.run)
        with anyio.fail_after(10):
            while b"PUB given.back" not in heard:
                await anyio.sleep(0.01)
        assert heard.index(b"SUB tasks") < heard.index(b"UNSUB") < heard.index(b"PUB given.back")
        tasks.cancel_scope.cancel()
