"""A server that sends prepared bytes, for the HTTP client's tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.lowlevel import checkpoint
from gym_models.wire import reply
from gym_models.wire.plain_client import PlainClient
from gym_models.wire.reply import NoAnswer, Reply

OK = b"HTTP/1.1 200 OK\r\n"
SOUND = OK + b"content-length: 3\r\n\r\nabc"


class Played:
    """A server that sends prepared pieces to each request, and closes where ``closes`` says so.

    ``scripts``: by the request's body. ``connections`` and ``gone`` count; ``heads`` are the requests' heads.
    """

    def __init__(self) -> None:
        self.scripts: dict[bytes, tuple[Sequence[bytes], bool]] = {}
        self.connections = self.gone = 0
        self.heads: list[bytes] = []
        self.changed = anyio.Event()

    async def serve(self, stream: SocketStream) -> None:
        self.connections += 1
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                received = b""
                while True:
                    while b"\r\n\r\n" not in received:
                        received += await stream.receive()
                    head, _, received = received.partition(b"\r\n\r\n")
                    self.heads.append(head)
                    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                    while len(received) < length:
                        received += await stream.receive()
                    body, received = received[:length], received[length:]
                    pieces, closes = self.scripts.get(body, ((), False))
                    for piece in pieces:
                        await stream.send(piece)
                        await checkpoint()
                    if closes:
                        break
        self.gone += 1
        self.changed.set()
        self.changed = anyio.Event()

    async def all_gone(self, count: int) -> None:
        with anyio.fail_after(15):
            while self.gone < count:
                await self.changed.wait()


@asynccontextmanager
async def playing(*, reuse: bool = True) -> AsyncGenerator[tuple[Played, PlainClient, str]]:
    server = Played()
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, server.serve)
        url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/v1"
        async with PlainClient(url, {"accept": "application/json"}, reuse=reuse) as client:
            yield server, client, url
        tasks.cancel_scope.cancel()


async def asked(client: PlainClient, url: str, body: bytes, limit_s: float = 5.0) -> Reply:
    return await client.request("POST", url, body, None, limit_s)


async def asked_again(client: PlainClient, url: str, body: bytes) -> Reply:
    """As `asked`; a connection that the server closed, and did not say so before, costs a second call."""
    try:
        return await asked(client, url, body)
    except NoAnswer as error:
        if error.said != reply.BROKE:
            raise
        return await asked(client, url, body)
