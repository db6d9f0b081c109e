"""Serves an application at an address: closes silent connections, and does not decompress bodies."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from aiohttp import web
from gym_runtime.errors import UsageError
from gym_runtime.timing import HEADERS_S

GATEWAY_STOP_S = 5.0
"""How long calls in progress may take when the gateway stops."""
LINGER_S = 2.0
"""How long a refused body is still read, so that the client reads the refusal."""


class HasApp(Protocol):
    """What can be served, such as a gateway."""

    def app(self) -> web.Application: ...


@asynccontextmanager
async def serving(
    served: HasApp,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    headers_s: float = HEADERS_S,
    stop_s: float = GATEWAY_STOP_S,
) -> AsyncGenerator[str]:
    """Serve until the context ends, which gives calls in progress ``stop_s``; yields ``http://HOST:PORT``.

    A connection has ``headers_s`` for the headers of each request, counted from its beginning or from the
    answer before, however slowly they come.

    Raises:
        UsageError: the address is in use, or is not this machine's.
    """
    runner = web.AppRunner(
        served.app(),
        # aiohttp lets a handler go on when its client has left, unless it is told otherwise.
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=stop_s,
        # It limits every wait for whole headers: since 3.14.4 also that for a connection's first ones.
        keepalive_timeout=headers_s,
        lingering_time=LINGER_S,
        auto_decompress=False,  # a small body may decompress to gigabytes
    )
    await runner.setup()
    try:
        # Thousands of rollouts may connect at the same moment; with asyncio's default of 100 some would have
        # to retry.
        site = web.TCPSite(runner, host, port, backlog=4096)
        try:
            await site.start()
        except OSError as error:
            where = f"{host}:{port}"
            raise UsageError(f"cannot listen on {where}: {error.strerror}; choose another port") from None
        port = runner.addresses[0][1]
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        with anyio.CancelScope(shield=True):
            await runner.cleanup()
