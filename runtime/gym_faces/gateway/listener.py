"""Serves an application at an address: closes silent connections, and does not decompress bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from aiohttp import web
from gym_runtime.timing import GATEWAY_STOP_S, HEADERS_S, KEEP_ALIVE_S, LINGER_S

from gym_faces.gateway.gateway_server import Handler


class HasApp(Protocol):
    """What can be served, such as a `Gateway`."""

    def app(self) -> web.Application: ...


@asynccontextmanager
async def serving(
    served: HasApp, *, host: str = "127.0.0.1", port: int = 0, headers_s: float = HEADERS_S
) -> AsyncGenerator[str]:
    """Serve until the context ends, which gives calls in progress `GATEWAY_STOP_S`; yields ``http://HOST:PORT``.

    A connection has ``headers_s`` for the headers of its first request, and `KEEP_ALIVE_S` for each next one.

    Raises:
        OSError: the address is in use, or is not this machine's.
    """
    app = served.app()
    accept = _Acceptor(headers_s)
    # First, so that also a refused request counts as heard.
    app.middlewares.insert(0, accept.heard)
    runner = web.AppRunner(
        app,
        # aiohttp lets a handler go on when its client has left, unless it is told otherwise.
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=GATEWAY_STOP_S,
        keepalive_timeout=KEEP_ALIVE_S,
        lingering_time=LINGER_S,
        auto_decompress=False,  # a small body may decompress to gigabytes
    )
    await runner.setup()
    accept.server = runner.server
    try:
        # Thousands of rollouts may connect at the same moment; with asyncio's default of 100 some would have
        # to retry.
        site = await asyncio.get_running_loop().create_server(accept, host, port, backlog=4096)
        try:
            port = site.sockets[0].getsockname()[1]
            yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        finally:
            # No new connections; those that are there are ended by `cleanup`.
            site.close()
    finally:
        with anyio.CancelScope(shield=True):
            await runner.cleanup()


class _Acceptor:
    """Makes the protocol of each connection. aiohttp limits every wait except that for the first request."""

    def __init__(self, headers_s: float) -> None:
        self.server: web.Server | None = None
        self._headers_s = headers_s
        self._silent: dict[object, asyncio.TimerHandle] = {}

    def __call__(self) -> asyncio.Protocol:
        assert self.server is not None
        protocol = self.server()
        loop = asyncio.get_running_loop()
        self._silent[protocol] = loop.call_later(self._headers_s, self._close, protocol)
        return protocol

    @web.middleware
    async def heard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note that a connection has sent a request, and stop its timer."""
        if timer := self._silent.pop(request.protocol, None):
            timer.cancel()
        return await handler(request)

    def _close(self, protocol: web.RequestHandler) -> None:
        del self._silent[protocol]
        if protocol.transport is not None:
            protocol.transport.close()
