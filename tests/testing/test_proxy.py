"""A network that fails on purpose."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from gym_testing.proxy import REPEATED_S, Proxy, Slowness

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


async def test_a_slow_link_delays_and_keeps_the_order() -> None:
    async with echo_behind_a_proxy() as (proxy, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        proxy.slowness = Slowness(delay_s=0.05, jitter_s=0.02, loss=0.2)
        sent = bytes(range(20))
        began_s = anyio.current_time()
        for number in sent:
            await client.send(bytes([number]))
        got = b""
        while len(got) < len(sent):
            got += await client.receive()
        assert got == sent
        assert anyio.current_time() - began_s >= 0.09


async def test_a_narrow_link_passes_so_many_bytes_a_second() -> None:
    async with echo_behind_a_proxy() as (proxy, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        proxy.slowness = Slowness(bytes_per_s=100_000)
        began_s = anyio.current_time()
        await client.send(bytes(10_000))
        got = 0
        while got < 10_000:
            got += len(await client.receive())
        assert anyio.current_time() - began_s >= 0.19


def test_what_is_lost_comes_later_the_more_often_it_is_lost() -> None:
    always = Slowness(delay_s=1.0).late_s(Random(1))
    late_s = [Slowness(loss=0.5).late_s(Random(seed)) for seed in range(100)]
    assert always == 1.0
    assert {0.0, REPEATED_S, round(REPEATED_S * 3, 3)} <= {round(one, 3) for one in late_s}
