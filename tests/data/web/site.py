"""A website of the tests on this machine, and what it was asked."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache

import anyio
from aiohttp import web
from gym_data.web.web_request import Bounds, Guard

HERE = Guard(private_hosts=frozenset({"127.0.0.1"}))
BOUNDS = Bounds(timeout_s=10.0, size_bytes=1_000_000)


@cache
def bomb() -> bytes:
    return gzip.compress(bytes(200_000_000))


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """Answers by path; `answers` may add paths.

    Attributes:
        url: without a slash at the end.
        asked: each request's path with its query, in order.
        headers: those of each request.
    """

    def __init__(self) -> None:
        bomb()  # made before a test watches the event loop
        self.url = ""
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.answers: dict[str, Handler] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.read())
        if request.path in self.answers:
            return await self.answers[request.path](request)
        match request.path.strip("/").split("/"):
            case ["page"]:
                return web.Response(text="<p>A page.</p>", content_type="text/html")
            case ["to"]:
                return web.Response(status=302, headers={"Location": request.query["url"]})
            case ["again"]:
                return web.Response(status=302, headers={"Location": "/again"})
            case ["status", status]:
                return web.Response(status=int(status), text="no")
            case ["type"]:
                return web.Response(body=b"x", content_type=request.query["type"])
            case ["bomb"]:
                return _encoded(bomb(), "gzip")
            case ["gzip"]:
                return _encoded(gzip.compress(b"one ") + gzip.compress(b"two"), "gzip")
            case ["deflate"]:
                return _encoded(zlib.compress(b"one two"), "deflate")
            case ["bare"]:
                return _encoded(zlib.compress(b"one two")[2:-4], "deflate")
            case ["members"]:
                return _encoded(gzip.compress(b"") * 5000, "gzip")
            case ["broken"]:
                return _encoded(b"this is not gzip", "gzip")
            case ["brotli"]:
                return _encoded(b"x", "br")
            case ["endless"]:
                return await _endless(request, b"x" * 65536)
            case ["slow"]:
                return await _endless(request, b"")
            case ["cut"]:
                return await _cut(request)
            case _:
                return web.Response(status=404, text="not here")


def _encoded(body: bytes, encoding: str) -> web.Response:
    return web.Response(body=body, headers={"Content-Encoding": encoding, "Content-Type": "text/html"})


async def _endless(request: web.Request, chunk: bytes) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    if not chunk:
        await anyio.sleep_forever()
    while True:
        await response.write(chunk)


async def _cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"x")
    assert request.transport is not None
    request.transport.abort()
    return response


@asynccontextmanager
async def site(host: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[Site]:
    """Serve one."""
    served = Site()
    app = web.Application(client_max_size=10_000_000)
    app.router.add_route("*", "/{path:.*}", served.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    served.url = f"http://{host}:{runner.addresses[0][1]}"
    try:
        yield served
    finally:
        await runner.cleanup()
