"""A reverse proxy before an engine that records all requests and answers, with the engine's own tokens.

It can imitate an engine that was started without ``--enable-scale-out``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from aiohttp import ClientSession, ClientTimeout, web
from stubs.stub_vllm import SCALE_OUT

GENERATE = "/inference/v1/generate"
RENDER = "/v1/chat/completions/render"
CHAT = "/v1/chat/completions"
TOKENIZE = "/tokenize"
_WRITTEN = (GENERATE, RENDER, CHAT, TOKENIZE)


class RecordingProxy:
    """What passed, in order: pairs of a request's and an answer's JSON, by path."""

    def __init__(self, engine_url: str, *, scale_out: bool = True) -> None:
        self.url = ""
        self._scale_out = scale_out
        self._engine_url = engine_url.removesuffix("/v1")
        self._passed: list[tuple[str, Any, Any]] = []
        self._more = anyio.Event()
        self._asked: dict[str, anyio.Event] = {}

    def passed(self, path: str) -> list[tuple[Any, Any]]:
        """The exchanges of one path."""
        return [(request, answer) for where, request, answer in self._passed if where == path]

    async def asked(self, path: str) -> None:
        """Wait until a request for this path has come."""
        await self._asked.setdefault(path, anyio.Event()).wait()

    async def seen(self, path: str, count: int) -> None:
        """Wait until so many exchanges of one path have passed."""
        while len(self.passed(path)) < count:
            await self._more.wait()

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        self._asked.setdefault(request.path, anyio.Event()).set()
        if not self._scale_out and request.path in SCALE_OUT:
            return web.json_response({"error": {"message": "Scale-out endpoints are disabled."}}, status=403)
        url = self._engine_url + request.path_qs
        async with self._session.request(
            request.method, url, data=body, headers={"content-type": "application/json"}
        ) as answer:
            said = await answer.read()
        if answer.status == 200 and request.path in _WRITTEN:
            self._passed.append((request.path, json.loads(body), json.loads(said)))
            self._more.set()
            self._more = anyio.Event()
        return web.Response(status=answer.status, body=said, content_type=answer.content_type)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[RecordingProxy]:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, handler_cancellation=True)
        async with ClientSession(timeout=ClientTimeout(total=None)) as self._session:
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
                yield self
            finally:
                await runner.cleanup()
