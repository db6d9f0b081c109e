"""Headers have to arrive in time at every HTTP server, those of a connection's later requests as well."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from faces.gateway.running_gateway import standing
from gym_testing.small_system import answer
from gym_view import web_server
from gym_view.metrics import metrics_server
from runtime.client.running_client import running_client

pytestmark = pytest.mark.anyio
HEADERS_S = 0.5
Server = Callable[[Path], AbstractAsyncContextManager[int]]


@asynccontextmanager
async def gateway(folder: Path) -> AsyncGenerator[int]:
    async with standing(answer("x"), headers_s=HEADERS_S) as stand:
        yield int(stand.url.rpartition(":")[2])


@asynccontextmanager
async def metrics(folder: Path) -> AsyncGenerator[int]:
    async with (
        running_client() as here,
        metrics_server.serving(here.gym.driver.bus, headers_s=HEADERS_S) as url,
    ):
        yield int(url.removesuffix("/metrics").rpartition(":")[2])


@asynccontextmanager
async def viewer(folder: Path) -> AsyncGenerator[int]:
    rollouts = folder / "out.jsonl"
    rollouts.write_text('{"reward": 1.0, "_ng_task_index": 0, "_ng_rollout_index": 0}\n')
    async with web_server.serve([rollouts], headers_s=HEADERS_S) as access:
        yield access.port


async def drips_until_it_is_closed(stream: SocketStream) -> None:
    await stream.send(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ")
    with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)), anyio.fail_after(10):
        while True:
            await stream.send(b"x")
            with anyio.move_on_after(0.05):
                await stream.receive()


@pytest.mark.slow
@pytest.mark.parametrize("server", [gateway, metrics, viewer])
async def test_headers_that_drip_are_not_waited_for(server: Server, tmp_path: Path) -> None:
    async with server(tmp_path) as port:
        async with await anyio.connect_tcp("127.0.0.1", port) as first:
            await drips_until_it_is_closed(first)
        async with await anyio.connect_tcp("127.0.0.1", port) as second:
            await second.send(b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert (await second.receive()).startswith(b"HTTP/1.1 40")
            await drips_until_it_is_closed(second)


async def test_a_request_that_is_not_http_is_answered_and_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(tmp_path) as port:
        for head in (b"GET / HTTP/1.1\r\ncontent-length: -5", b"GET /\0 HTTP/1.1"):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(head + b"\r\nhost: localhost\r\n\r\n")
                said = b""
                with suppress(anyio.EndOfStream), anyio.fail_after(10):
                    while b" 400 Bad Request" not in said:
                        said += await stream.receive()
                assert b" 400 Bad Request" in said
    assert not caplog.records
