"""A server that speaks OpenEnv's protocol: a counter with an action, or with tools over MCP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

GAME = {
    "title": "Move",
    "description": "A number to add.",
    "type": "object",
    "properties": {"metadata": {"type": "object"}, "amount": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["amount"],
}
TEXT = {
    "title": "Line",
    "type": "object",
    "properties": {"metadata": {"type": "object"}, "message": {"type": "string"}},
    "required": ["message"],
}
MCP = {"title": "CallToolAction", "type": "object", "properties": {}}
ADD = {"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {}}}


class Stub:
    """The server; the episode ends at 3, which is worth 1. Each session has its own count.

    Attributes:
        sessions: how many may be open; others are refused.
        steps: the episode ends with this step at the latest, if its action is a text.
        drop_at: the session's connection is cut in its n-th step, once.
        resets: what sessions were reset with.
    """

    def __init__(
        self, action: dict[str, Any], *, sessions: int = 100, rewarded: bool = True, steps: int = 100
    ) -> None:
        self.action, self.sessions, self.rewarded, self.steps = action, sessions, rewarded, steps
        self.url = ""
        self.open = self.refused = 0
        self.drop_at = 0
        self.resets: list[dict[str, Any]] = []
        self.ended = 0

    async def schema(self, request: web.Request) -> web.Response:
        return web.json_response({"action": self.action, "observation": {}, "state": {}})

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if self.open >= self.sessions:
            self.refused += 1
            problem = {"message": "full", "code": "CAPACITY_REACHED", "active_sessions": self.open}
            await socket.send_json({"type": "error", "data": problem})
            await socket.close()
            return socket
        self.open += 1
        try:
            await self._session(socket)
        finally:
            self.open -= 1
        return socket

    async def _session(self, socket: web.WebSocketResponse) -> None:
        count = steps = 0
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                return
            asked = message.json()
            data = asked["data"]
            if asked["type"] == "reset":
                self.resets.append(data)
                if data.get("seed") == -1:
                    await self._tell(
                        socket, "error", {"message": "Invalid message", "code": "VALIDATION_ERROR"}
                    )
                    continue
                await self._seen(socket, {"count": count}, None)
                continue
            if data.get("type") == "list_tools":
                await self._seen(socket, {"tools": [ADD]}, None)
                continue
            steps += 1
            if steps == self.drop_at:
                self.drop_at = 0
                assert socket._req is not None
                assert socket._req.transport is not None
                socket._req.transport.abort()
                return
            amount = data.get("arguments", data).get("amount", data.get("message"))
            if amount == "broken":
                problem = {"message": "the environment is broken", "code": "EXECUTION_ERROR"}
                await self._tell(socket, "error", problem)
            elif not isinstance(amount, int):
                problem = {"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": ["amount"]}
                if self.action is not TEXT:
                    await self._tell(socket, "error", problem)
                    continue
                await self._seen(socket, {"heard": amount}, 0.5, done=amount == "stop" or steps == self.steps)
            else:
                count += amount
                done = count >= 3
                self.ended += done
                reward = (1.0 if done else 0.0) if self.rewarded else None
                await self._seen(socket, {"count": count}, reward, done=done)

    async def _seen(
        self, socket: web.WebSocketResponse, seen: dict[str, Any], reward: float | None, *, done: bool = False
    ) -> None:
        # As OpenEnv has it since 0.4.
        observation = {**seen, "metadata": {"answer": "stop"}}
        await self._tell(socket, "observation", {"observation": observation, "reward": reward, "done": done})

    async def _tell(self, socket: web.WebSocketResponse, kind: str, data: dict[str, Any]) -> None:
        await socket.send_json({"type": kind, "data": data})


@asynccontextmanager
async def served(stub: Stub) -> AsyncGenerator[Stub]:
    app = web.Application()
    app.add_routes([web.get("/schema", stub.schema), web.get("/ws", stub.serve)])
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        stub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield stub
    finally:
        await runner.cleanup()
