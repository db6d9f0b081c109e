"""What is large is not encoded before it can be written."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from gym_runtime.bus.outgoing import CROWDED_BYTES, Outgoing
from gym_runtime.bus.socket import Socket

pytestmark = pytest.mark.anyio
LARGE = b"x" * (8 * CROWDED_BYTES)


class Peer:
    """The other side of a connection: it reads nothing until `reads` is set."""

    def __init__(self, end: socket.socket) -> None:
        self.reads = anyio.Event()
        self.got_bytes = 0
        self._end = end

    async def serve(self) -> None:
        await self.reads.wait()
        while data := await asyncio.get_running_loop().sock_recv(self._end, 1 << 20):
            self.got_bytes += len(data)


@asynccontextmanager
async def connected() -> AsyncGenerator[tuple[Outgoing, Peer]]:
    one, other = socket.socketpair()
    other.setblocking(False)
    peer = Peer(other)
    with other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.serve)
            outgoing = Outgoing(1 << 30)
            ours = Socket(lambda *_: None, outgoing.kick)
            await asyncio.get_running_loop().create_connection(lambda: ours, sock=one)
            outgoing.attach(ours)
            yield outgoing, peer
            ours.abort()
            await ours.lost.wait()
            tasks.cancel_scope.cancel()


async def fill(outgoing: Outgoing) -> None:
    """Write more than the socket takes."""
    outgoing.add((LARGE,), len(LARGE))
    while not outgoing.crowded or outgoing.waiting_bytes:
        await anyio.sleep(0.001)


async def test_callers_send_in_their_order_and_a_few_at_a_time() -> None:
    async with connected() as (outgoing, peer):
        assert not outgoing.crowded
        await fill(outgoing)
        sent: list[int] = []

        async def send(number: int) -> None:
            await outgoing.ease()
            assert outgoing.waiting_bytes <= CROWDED_BYTES
            sent.append(number)
            outgoing.add((LARGE,), len(LARGE))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(send, number)
            await anyio.sleep(0.05)
            assert sent == []
            peer.reads.set()
        assert sent == list(range(20))
        with anyio.fail_after(10):
            while peer.got_bytes < 21 * len(LARGE):
                await anyio.sleep(0.01)


async def test_one_that_gives_up_does_not_hold_the_others() -> None:
    async with connected() as (outgoing, peer):
        await fill(outgoing)
        eased: list[int] = []

        async def wait(number: int, within_s: float) -> None:
            with anyio.move_on_after(within_s):
                await outgoing.ease()
                eased.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(wait, number, 0.02 if number % 2 == 0 else 10)
            await anyio.sleep(0.05)
            peer.reads.set()
        assert eased == [1, 3]


async def test_a_connection_that_is_lost_holds_nothing_back() -> None:
    async with connected() as (outgoing, _):
        await fill(outgoing)
        async with anyio.create_task_group() as tasks:
            for _number in range(3):
                tasks.start_soon(outgoing.ease)
            await anyio.sleep(0.01)
            outgoing.detach()
        assert not outgoing.crowded
