"""Serves the metrics of a system at ``/metrics``, and pushes them where the environment asks for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.to_thread
from aiohttp import web
from gym_runtime.bus.interface import Bus
from gym_runtime.client.streaming import background
from gym_runtime.errors import GymError, UsageError
from gym_runtime.timing import METRICS_STOP_S, STALE_S

from gym_view.metrics import push
from gym_view.metrics.exposition import CONTENT_TYPE, exposition
from gym_view.metrics.gathering import SystemFigures


@asynccontextmanager
async def serving(bus: Bus, *, host: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[str]:
    """Serve until the context ends; yields the address of the metrics.

    Raises:
        UsageError: the address is in use, or is not this machine's.
    """
    figures = SystemFigures(bus)

    async def metrics(request: web.Request) -> web.Response:
        age_s = anyio.current_time() - figures.looked_s
        if age_s > STALE_S:
            return web.Response(status=503, text="the broker was not reached for too long\n")
        # The figures are summed here, in the loop that changes them; only the text is made in a thread.
        text = await anyio.to_thread.run_sync(exposition, figures.figures())
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=METRICS_STOP_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another port"
            ) from None
        with suppress(GymError):  # the next look is soon, and says why there are no figures
            await figures.look()
        async with background() as tasks:
            tasks.start_soon(figures.follow)
            if push.wanted():
                tasks.start_soon(push.push, figures.figures)
            bound = runner.addresses[0]
            shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
            yield f"http://{shown}:{bound[1]}/metrics"
    finally:
        with anyio.CancelScope(shield=True):
            await runner.cleanup()
