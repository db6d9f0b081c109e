"""A forward proxy in front of a stub engine: whatever host is asked for, the stub is what answers."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream


class Proxy:
    """What a proxy was asked for. ``login`` is ``user:password`` where it wants one."""

    def __init__(self, engine_url: str, login: str = "") -> None:
        self.requests: list[str] = []
        self.url = ""
        self._engine = urlsplit(engine_url)
        self._login = base64.b64encode(login.encode()) if login else b""

    async def serve(self, client: SocketStream) -> None:
        """One connection; one request on it."""
        async with client:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await client.receive()
            head, _, body = received.partition(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            self.requests.append(f"{method} {target}")
            if self._login and b"proxy-authorization: basic " + self._login not in _lower_names(head):
                await client.send(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
                return
            if method == "CONNECT":
                await client.send(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
                return
            head = head.replace(target.encode(), urlsplit(target).path.encode(), 1)
            host, port = self._engine.hostname, self._engine.port
            assert host is not None
            assert port is not None
            async with await anyio.connect_tcp(host, port) as engine, anyio.create_task_group() as tasks:
                await engine.send(head + b"\r\n\r\n" + body)
                tasks.start_soon(_pipe, client, engine)
                answer = await engine.receive()
                await client.send(answer.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
                await _pipe(engine, client)
                tasks.cancel_scope.cancel()


def _lower_names(head: bytes) -> bytes:
    return b"\r\n".join(
        name.lower() + b":" + value
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n"))
    ).replace(b": Basic", b": basic")


async def _pipe(source: SocketStream, target: SocketStream) -> None:
    try:
        async for part in source:
            await target.send(part)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


@asynccontextmanager
async def proxied(engine_url: str, login: str = "") -> AsyncIterator[Proxy]:
    """A proxy that listens on loopback."""
    proxy = Proxy(engine_url, login)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    proxy.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, proxy.serve)
        yield proxy
        tasks.cancel_scope.cancel()
