"""A connection to an MCP server over HTTP: streams that can be resumed, sessions, requests of the server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web
from gym_data.web.listener import serving
from gym_resources.mcp_tools.mcp_connection import Connection, McpServer
from gym_runtime import ResourceError
from resources.guests.mcp_servers import LISTED, program, said, server

pytestmark = pytest.mark.anyio


class AskingServer:
    """Keeps sessions, answers in streams that can be resumed, and waits for what it asks the client for."""

    def __init__(self) -> None:
        self.sessions = {"s1"}
        self._replied = anyio.Event()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/mcp", self._answer)
        app.router.add_delete("/mcp", self._end)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if asked.get("method") != "initialize":
            assert request.headers["mcp-session-id"] in self.sessions
        if "method" not in asked:
            assert (asked["id"], asked["error"]["code"]) == ("ask", -32601)
            self._replied.set()
        if "method" not in asked or "id" not in asked:
            return web.Response(status=202)
        stream = web.StreamResponse(headers={"content-type": "text/event-stream", "mcp-session-id": "s1"})
        await stream.prepare(request)
        # As the SDK's, where the server stores its events: the client learns an id from which to resume.
        await stream.write(b"id: 0\r\nretry: 100\r\ndata: \r\n\r\n")
        result: dict[str, Any] = LISTED if asked["method"] == "tools/list" else {}
        if asked["method"] == "tools/call":
            question: dict[str, Any] = {
                "jsonrpc": "2.0",
                "id": "ask",
                "method": "elicitation/create",
                "params": {},
            }
            await stream.write(b"data: %b\n\n" % json.dumps(question).encode())
            await self._replied.wait()
            result = {"content": [{"type": "text", "text": "it was refused"}], "isError": True}
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
        await stream.write(b"id: 1\r\ndata: %b\r\n\r\n" % json.dumps(answer).encode())
        return stream

    async def _end(self, request: web.Request) -> web.Response:
        self.sessions.remove(request.headers["mcp-session-id"])
        return web.Response()


async def test_a_server_that_keeps_sessions_resumes_streams_and_asks_the_client() -> None:
    asking = AskingServer()
    async with serving(asking, stop_s=0.1) as url:
        async with Connection(McpServer(url=f"{url}/mcp")) as connection:
            assert [tool.name for tool in await connection.tools()] == ["look"]
            result = await connection.call("look", {})
            assert (result.is_error, result.content[0]["text"]) == (True, "it was refused")
            assert asking.sessions == {"s1"}
        assert asking.sessions == set(), "a server would keep it for ever"


async def test_an_empty_line_of_a_program_is_no_message(tmp_path: Path) -> None:
    path = program(tmp_path)
    path.write_text(path.read_text().replace("count, said = 0, print", "count = 0; print(flush=True)"))
    told = McpServer(command=("python", str(path)), folders=(str(path),))
    async with Connection(told) as connection:
        assert [tool.name for tool in await connection.tools()] == ["count.add"]


async def test_a_line_that_is_no_message_is_quoted(tmp_path: Path) -> None:
    path = tmp_path / "talks.py"
    path.write_text("print('Starting\\tthe server …', flush=True); input()")
    with pytest.raises(ResourceError, match=r"sent an invalid message .*: Starting the server"):
        async with Connection(McpServer(command=("python", str(path)), folders=(str(path),))):
            pass


async def test_a_call_that_wants_input_has_no_result() -> None:
    async def wants(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        return said(asked, {"resultType": "input_required", "inputRequests": {}})

    async with server(call=wants) as url, Connection(McpServer(url=url)) as connection:
        result = await connection.call("look", {})
    assert result.is_error
    assert "'look' has no result: it asks for" in result.content[0]["text"]


@asynccontextmanager
async def refusing(status: int, body: object, **headers: str) -> AsyncGenerator[McpServer]:
    class Refusing:
        def app(self) -> web.Application:
            app = web.Application()
            app.router.add_post("/mcp", self._answer)
            return app

        async def _answer(self, request: web.Request) -> web.Response:
            return web.json_response(body, status=status, headers=headers)

    async with serving(Refusing(), stop_s=0.1) as url:
        yield McpServer(url=f"{url}/mcp")


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (401, {"error": "invalid_token"}, 'answered 401 to initialize: {"error": "invalid_token"}'),
        (404, {"detail": "Not Found"}, 'answered 404 to tools/list: {"detail": "Not Found"}'),
        (
            400,
            {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "No session"}},
            "answered 400 to tools/list: .*No session",
        ),
        (500, {"message": "oops"}, "answered 500 to initialize: .*oops"),
    ],
)
async def test_a_refusal_is_told_in_the_servers_words(status: int, body: object, why: str) -> None:
    async with refusing(status, body) as told:
        with pytest.raises(ResourceError, match=why):
            async with Connection(told) as connection:
                await connection.tools()
