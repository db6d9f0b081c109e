"""A connection's end."""

from __future__ import annotations

import asyncio
import socket

import anyio
import pytest
from gym_runtime.bus.socket import Socket


@pytest.mark.asyncio
async def test_one_that_closed_once_all_was_sent_can_still_be_aborted() -> None:
    one, other = socket.socketpair()
    other.setblocking(False)
    loop = asyncio.get_running_loop()
    ours = Socket(lambda *_: None, lambda: None)
    await loop.create_connection(lambda: ours, sock=one)
    with other, anyio.fail_after(10):
        # More than the system takes, so that some of it is left when the connection is closed.
        ours.write(bytes(8_000_000))
        ours.close()
        got_bytes = 0
        while got_bytes < 8_000_000:
            got_bytes += len(await loop.sock_recv(other, 1 << 20))
        await ours.lost.wait()
        ours.abort()
    assert ours.failure is None
