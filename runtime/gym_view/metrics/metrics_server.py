"""Serves the metrics of a system at ``/metrics``, and pushes them where the environment asks for it.

``/health`` says only that the server answers, for the probes of a platform.

It refuses requests with a foreign ``Host``: a web page could read the figures with them, by a name
that resolves to this machine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.to_thread
from aiohttp import web
from gym_data.web import listener
from gym_data.web.listener import foreign_host, own_names
from gym_runtime.bus import Bus
from gym_runtime.client import background
from gym_runtime.errors import GymError
from gym_runtime.timing import HEADERS_S

from gym_view.metrics import push
from gym_view.metrics.exposition import CONTENT_TYPE, exposition
from gym_view.metrics.gathering import SystemFigures

STALE_S = 30.0
"""Figures that are older are not served: Prometheus then says that this target is down."""
METRICS_STOP_S = 1.0
"""How long requests in progress may take when the endpoint stops."""


class _Endpoint:
    """``/metrics``, by the names of this machine and ``host``."""

    def __init__(self, figures: SystemFigures, host: str) -> None:
        self._figures = figures
        self._names = own_names(host)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        # Also while the broker is away, which ends by itself: a platform need not start this again.
        return web.Response(text="ok\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        if problem := foreign_host(request, self._names):
            return web.Response(status=403, text=f"{problem}\n")
        age_s = anyio.current_time() - self._figures.looked_s
        if age_s > STALE_S:
            return web.Response(status=503, text="the broker was not reached for too long\n")
        # The figures are summed here, in the loop that changes them; only the text is made in a thread.
        text = await anyio.to_thread.run_sync(exposition, self._figures.figures())
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


@asynccontextmanager
async def serving(
    bus: Bus, *, host: str = "127.0.0.1", port: int = 0, headers_s: float = HEADERS_S
) -> AsyncGenerator[str]:
    """Serve until the context ends; yields the address of the metrics.

    Raises:
        UsageError: the address is in use, or is not this machine's.
    """
    figures = SystemFigures(bus)
    endpoint = _Endpoint(figures, host)
    async with listener.serving(
        endpoint, host=host, port=port, headers_s=headers_s, stop_s=METRICS_STOP_S
    ) as url:
        with suppress(GymError):  # the next look is soon, and says why there are no figures
            await figures.look()
        async with background() as tasks:
            tasks.start_soon(figures.follow)
            if push.wanted():
                tasks.start_soon(push.push, figures.figures)
            yield f"{url}/metrics"
