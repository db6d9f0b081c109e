"""The HTTP client for private engines: what it reads, what it refuses, and that no answer is another's."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketAttribute, SocketStream
from gym_models.wire import plain_client, reply
from gym_models.wire.aiohttp_client import AiohttpClient
from gym_models.wire.plain_client import MAX_HEAD_BYTES, PlainClient
from gym_models.wire.reply import NoAnswer
from gym_runtime import UsageError
from models.played_server import OK, SOUND, asked, asked_again, playing
from tables import table

pytestmark = pytest.mark.anyio

CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@table("whole", [True, False], ids=["whole", "by the byte"])
@table(
    ("sent", "body"),
    [
        (SOUND, b"abc"),
        (OK + b"content-length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (CHUNKED + b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", b"abc"),
        (CHUNKED + b"3\r\nabc\r\n0\r\nx-sum: 1\r\nx-more: 9\r\n\r\n", b"abc"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n" + SOUND, b"abc"),
        (OK + b"\r\nabc", b"abc"),  # up to the connection's end
        (b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nabc", b"abc"),
        (OK + b"connection: close\r\ncontent-length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\ncontent-length: 3\n\nabc", b"abc"),
    ],
)  # fmt: skip
async def test_answers_that_are_read(sent: bytes, body: bytes, whole: bool) -> None:
    async with playing() as (server, client, url):
        server.scripts[b"?"] = ([sent] if whole else [b"%c" % byte for byte in sent]), True
        reply = await asked(client, url, b"?")
        assert reply.body == body
        assert reply.headers.get("content-length") in (None, str(len(body)))
        server.scripts[b"next"] = [OK + b"content-length: 4\r\n\r\nnext"], False
        assert (await asked_again(client, url, b"next")).body == b"next"


@table(
    ("sent", "said"),
    [
        (b"", reply.BROKE),
        (b"HTTP/1.1 200 OK\r\ncontent-le", reply.BROKE),
        (OK + b"content-length: 3\r\n\r\nab", reply.BROKE),
        (CHUNKED + b"3\r\nabc\r\n", reply.BROKE),
        (b"SSH-2.0-OpenSSH_9.2\r\n", reply.NOT_HTTP),
        (b"HTTP/3.7 200 OK\r\n\r\n", reply.NOT_HTTP),
        (OK + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd", reply.NOT_HTTP),
        (OK + b"content-length: 3\r\n" + CHUNKED[17:] + b"3\r\nabc\r\n0\r\n\r\n", reply.NOT_HTTP),
        (OK + b"content-length: -3\r\n\r\nabc", reply.NOT_HTTP),
        (OK + b"content-length: 99999999999999999999999\r\n\r\nabc", reply.NOT_HTTP),
        (OK + b"transfer-encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", reply.NOT_HTTP),
        (CHUNKED + b"xyz\r\nabc\r\n0\r\n\r\n", reply.NOT_HTTP),
        (OK + b"x: a\x00b\r\ncontent-length: 3\r\n\r\nabc", reply.NOT_HTTP),
        (OK + b"x : y\r\n folded\r\ncontent-length: 3\r\n\r\nabc", reply.NOT_HTTP),
        (b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", reply.NOT_HTTP),
    ],
)  # fmt: skip
async def test_answers_that_are_none(sent: bytes, said: str) -> None:
    async with playing() as (server, client, url):
        server.scripts[b"?"] = [sent], True
        with pytest.raises(NoAnswer) as caught:
            await asked(client, url, b"?")
        assert caught.value.said == said
        await server.all_gone(1)


@table(
    ("before", "piece"),
    [
        (OK + b"x: ", b"y" * 1000),
        (OK, b"x: y\r\n" * 100),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        (CHUNKED + b"1;", b"x" * 1000),
        (CHUNKED + b"0\r\n", b"x: y\r\n" * 100),
        (CHUNKED + b"0\r\nx: ", b"y" * 1000),
    ],
    ids=["header", "headers", "100", "chunk extension", "trailers", "trailer"],
)
async def test_what_is_no_body_has_a_bound(before: bytes, piece: bytes) -> None:
    async with playing() as (server, client, url):
        server.scripts[b"?"] = [before, *[piece] * (3 * MAX_HEAD_BYTES // len(piece))], False
        with pytest.raises(NoAnswer) as caught:
            await asked(client, url, b"?")
        assert caught.value.said == reply.NOT_HTTP
        await server.all_gone(1)


async def test_a_body_in_tiny_pieces_takes_no_more_memory_than_its_bytes() -> None:
    pieces = 100_000
    sent = CHUNKED + b"2\r\nab\r\n" * pieces + b"0\r\n\r\n"
    async with playing() as (server, client, url):
        server.scripts[b"?"] = [sent], False
        tracemalloc.start()
        try:
            answer = await asked(client, url, b"?")
            most_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert answer.body == b"ab" * pieces
    # An object for each would take 4 MB; what is read at once takes up to 1 MB.
    assert most_bytes < 2_500_000


@table("more", [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", b"garbage\r\n\r\n", b"\x00"])
@table("at_once", [True, False])
async def test_what_follows_an_answer_is_not_the_next_ones(more: bytes, at_once: bool) -> None:
    async with playing() as (server, client, url):
        server.scripts[b"?"] = ([SOUND + more] if at_once else [SOUND, more]), False
        server.scripts[b"next"] = [OK + b"content-length: 4\r\n\r\nnext"], False
        assert (await asked(client, url, b"?")).body == b"abc"
        await server.all_gone(1)  # the client left
        assert (await asked(client, url, b"next")).body == b"next"
        assert server.connections == 2


@table("more", [SOUND, SOUND[:-1]], ids=["whole", "part"])
async def test_what_follows_a_hosts_answer_is_not_the_next_ones(more: bytes) -> None:
    async with playing() as (server, _, url), AiohttpClient(url, {}, reuse=True, proxied=False) as client:
        server.scripts[b"1"] = [OK + b"content-length: 5\r\n\r\nfirst", more], False
        server.scripts[b"2"] = [OK + b"content-length: 6\r\n\r\nsecond"], False
        assert (await client.request("POST", url, b"1", None, 5)).body == b"first"
        connector: Any = client._session.connector  # pyright: ignore[reportPrivateUsage]
        # None is kept if both came at once.
        kept = [one for several in connector._conns.values() for one, _ in several]
        with anyio.fail_after(15):
            while not all(one.should_close for one in kept):
                await anyio.lowlevel.checkpoint()
            assert (await client.request("POST", url, b"2", None, 5)).body == b"second"
        assert server.connections == 2


async def test_a_connection_that_the_engine_closed_is_not_used_again() -> None:
    async with playing() as (server, client, url):
        server.scripts[b"?"] = [SOUND], True  # unannounced
        for number in range(3):
            assert (await asked_again(client, url, b"?")).body == b"abc"
            await server.all_gone(number + 1)


async def test_connections_are_kept_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for reuse, connections in ((True, 1), (False, 5)):
        async with playing(reuse=reuse) as (server, client, url):
            server.scripts[b"?"] = [SOUND], False
            for _ in range(5):
                await asked(client, url, b"?")
            assert server.connections == connections
            assert (b"connection: close" in server.heads[0]) is not reuse
    monkeypatch.setattr(plain_client, "KEEP_ALIVE_S", 0.05)
    async with playing() as (server, client, url):
        server.scripts[b"?"] = [SOUND], False
        await asked(client, url, b"?")
        await server.all_gone(1)


async def test_a_get_is_repeated_where_its_connection_was_closed() -> None:
    async with playing() as (server, client, url):
        server.scripts[b"?"], server.scripts[b""] = ([SOUND], True), ([SOUND], False)
        for _ in range(5):
            await asked_again(client, url, b"?")  # closed after its answer, unannounced
            assert (await client.request("GET", url + "/models?a=b", None, None, 5.0)).body == b"abc"
        assert server.heads[-1].startswith(b"GET /v1/models?a=b HTTP/1.1\r\nhost: 127.0.0.1:")


@pytest.mark.parametrize("sent", [b"", OK + b"content-length: 9\r\n\r\nabc"])
async def test_a_call_that_is_cancelled_or_late_closes_its_connection(sent: bytes) -> None:
    async with playing() as (server, client, url):
        server.scripts[b"?"] = [sent], False
        with anyio.move_on_after(0.1):
            await asked(client, url, b"?")
        await server.all_gone(1)
        with pytest.raises(TimeoutError):
            await asked(client, url, b"?", limit_s=0.1)
        await server.all_gone(2)


async def test_an_answer_that_overtakes_its_request() -> None:
    async def serve(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while not over.is_set():
                    await anyio.sleep_forever()

    over = anyio.Event()
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        url = f"http://localhost:{listener.extra(SocketAttribute.local_port)}/v1"
        async with PlainClient(url, {}, reuse=True) as client:
            for _ in range(2):
                reply = await asked(client, url, bytes(32 << 20))
                assert (reply.status, reply.body) == (413, b"big")
        tasks.cancel_scope.cancel()


async def test_addresses() -> None:
    async with PlainClient(f"http://{'a' * 64}.internal/v1", {}, reuse=True) as client:
        with pytest.raises(NoAnswer) as caught:
            await asked(client, "http://a.internal/v1", b"")
        assert caught.value.said == reply.UNRESOLVED
    async with PlainClient("http://127.0.0.1:1/v1", {}, reuse=True) as client:
        with pytest.raises(NoAnswer) as caught:
            await asked(client, "http://127.0.0.1:1/v1", b"")
        assert caught.value.said == reply.REFUSED
        with pytest.raises(UsageError, match="a line break within one of the headers x-a, x-b"):
            await client.request(
                "POST", "http://127.0.0.1:1/v1", b"", {"x-a": "1", "x-b": "2\r\nx-c: 3"}, 5.0
            )


@pytest.mark.slow
def test_an_engine_in_a_private_network_needs_no_aiohttp() -> None:
    program = "import sys, gym_models.openai; sys.exit('aiohttp' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_where_a_process_may_open_few_files_half_of_them_are_left_for_the_rest() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 256));"
        "from gym_models.wire.sockets import most_connections; print(most_connections());"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["128", "(256, 256)"]
