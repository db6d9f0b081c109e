"""A network that fails on purpose."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from gym_runtime.testing.proxy import Proxy

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def echo_behind_a_proxy() -> AsyncGenerator[tuple[Proxy, int]]:
    async def echo(client: SocketStream) -> None:
        async with client:
            async for chunk in client:
                await client.send(chunk)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, echo)
        proxy = Proxy("127.0.0.1", listener.extra(SocketAttribute.local_port))
        async with proxy.listening() as port:
            yield proxy, port
        tasks.cancel_scope.cancel()


async def test_it_relays_both_ways() -> None:
    async with echo_behind_a_proxy() as (_, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(b"hello")
        assert await client.receive() == b"hello"


async def test_a_cut_breaks_what_is_connected_and_refuses_what_comes_until_it_is_mended() -> None:
    async with echo_behind_a_proxy() as (proxy, port):
        async with await anyio.connect_tcp("127.0.0.1", port) as client:
            await client.send(b"hello")
            await client.receive()
            proxy.cut()
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await client.receive()
        async with await anyio.connect_tcp("127.0.0.1", port) as client:
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await client.receive()
        proxy.mend()
        async with await anyio.connect_tcp("127.0.0.1", port) as client:
            await client.send(b"again")
            assert await client.receive() == b"again"


async def test_what_is_frozen_waits_and_is_not_lost() -> None:
    async with echo_behind_a_proxy() as (proxy, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        proxy.freeze()
        await client.send(b"hello")
        with anyio.move_on_after(0.1) as waited:
            await client.receive()
        assert waited.cancelled_caught
        proxy.thaw()
        assert await client.receive() == b"hello"


async def test_a_connection_ends_where_nobody_listens_behind_the_proxy() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
    async with (
        Proxy("127.0.0.1", port).listening() as proxied,
        await anyio.connect_tcp("127.0.0.1", proxied) as client,
    ):
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await client.receive()
