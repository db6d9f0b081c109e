"""Something else answers where the Responses API would be, and there is no Chat Completions either."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from gym_faces.dialects.chat_request import ChatVariant
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Engine
from gym_runtime.errors import ModelUnavailable
from models.model_calls import context, model_call

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serving(body: str) -> AsyncGenerator[str]:
    """An HTTP server that answers this on the path of the Responses API, and 404 everywhere else."""

    async def respond(request: web.Request) -> web.Response:
        return web.Response(text=body, content_type="text/html")

    app = web.Application()
    app.router.add_post("/v1/responses", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def test_the_first_answer_is_the_error_and_may_be_tried_again() -> None:
    async with serving("<html>the engine is starting</html>") as url:
        endpoint = Endpoint(url=url, headers={}, private=True)
        async with Engine(endpoint, model="stub", api="auto", dialect=ChatVariant()) as engine:
            with pytest.raises(ModelUnavailable, match="the engine is starting"):
                await engine.respond(model_call(), context())
            assert engine.api == "auto"
