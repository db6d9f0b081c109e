"""MCP servers for tests: one that follows the protocol, as a program and over HTTP, and hostile ones."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from gym_data.web.listener import serving

COUNTER = """
import json, sys

count, said = 0, print
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        # It asks for something itself first, and waits for the answer.
        print(json.dumps({"jsonrpc": "2.0", "id": "s1", "method": "roots/list"}), flush=True)
        assert "error" in json.loads(sys.stdin.readline())
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}}}
    elif asked["method"] == "tools/list":
        schema = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
        result = {"tools": [{"name": "count.add", "description": "Add.\\x1b[2J", "inputSchema": schema}]}
    elif asked["method"] == "tools/call":
        count += asked["params"]["arguments"]["amount"]
        content = [{"type": "text", "text": f"count {count}"}, {"type": "resource_link", "uri": "http://x/y"}]
        result = {"content": content}
    print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}), flush=True)
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    if count == 99:
        break
"""


def program(folder: Path) -> Path:
    path = folder / "counter.py"
    path.write_text(COUNTER)
    return path


Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
LISTED = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}


class Server:
    """Answers by a function of the request; what it does not answer is answered as by the protocol."""

    def __init__(
        self, tools: dict[str, Any], call: Answer | None = None, *, list_: Answer | None = None
    ) -> None:
        self._tools, self._call, self._list = tools, call, list_

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/mcp", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if asked["method"] == "tools/call" and self._call is not None:
            return await self._call(request, asked)
        if asked["method"] == "tools/list" and self._list is not None:
            return await self._list(request, asked)
        if "id" not in asked:
            return web.Response(status=202)
        return said(asked, self._tools if asked["method"] == "tools/list" else {"content": []})


def said(asked: dict[str, Any], result: object) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": result})


@asynccontextmanager
async def server(tools: dict[str, Any] = LISTED, **answers: Answer) -> AsyncGenerator[str]:
    call, list_ = answers.get("call"), answers.get("list_")
    async with serving(Server(tools, call, list_=list_), stop_s=0.1) as url:
        yield f"{url}/mcp"


def choice(**fields: Any) -> dict[str, Any]:
    """A row that the environment mcqa judges."""
    options = [{"A": "1"}, {"B": "2"}]
    return {"responses_create_params": {"input": "?"}, "options": options, "expected_answer": "B", **fields}


def texts(row: bytes) -> list[Any]:
    """The outputs of a row's tool calls."""
    return [
        one["output"]
        for one in json.loads(row)["response"]["output"]
        if one["type"] == "function_call_output"
    ]
