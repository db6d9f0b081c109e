"""One environment of a running system behind OpenEnv's API, for clients of OpenEnv.

    GET /health, /metadata, /schema
    GET /ws             a session: messages ``reset``, ``step``, ``state``, ``close``
    GET /list_environments, /NAME/splits
    POST /mcp           JSON-RPC, for clients that call tools beside their connection
    POST /NAME/num_tasks, /NAME/tasks, /NAME/task_range, /NAME/task

A client of ``/mcp`` asks for a session first (``openenv/session/create``), connects to ``/ws?session_id=ID``,
and calls the session's tools by ``tools/list`` and ``tools/call`` then.

The rows are the tasks of one split, `SPLIT`; a task is the row's number and its prompt.
``reset`` takes ``index``, the number of a row, or ``seed``, which chooses one; with neither it is a random
one. Actions are those of
OpenEnv's environments with tools: ``{"type": "list_tools"}``, and ``call_tool`` with ``tool_name`` and
``arguments``. The tool ``submit`` is added: its ``answer`` is the model's final message, in a step-by-step
environment the next one. The reward comes with ``done``, from the environment's verifier; a failure is an
error, and never a reward. A session ends with its connection.

Source: the messages of openenv 0.10, ``openenv.core.env_server.types``.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal

import anyio
import msgspec
from aiohttp import WSMsgType, web
from gym_data.web.listener import own_names
from gym_runtime.client import Client, EnvironmentSession
from gym_runtime.environment import LoadedEnvironment
from gym_runtime.errors import UNREADABLE, GymError, TaskError
from gym_runtime.messages import Content
from msgspec import Raw

from gym_faces.dialects.dialect import Refusal
from gym_faces.dialects.pieces import is_null
from gym_faces.gateway.admission import check_caller

MAX_BYTES = 4 * 2**20
SUBMIT = "submit"
SPLIT = "train"
PREVIEW = 1000
"""So many tasks are listed at once; num_tasks says how many there are."""
_PARAMETERS = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
_SCHEMA = {
    "title": "CallToolAction",
    "type": "object",
    "properties": {
        "type": {"const": "call_tool", "type": "string"},
        "tool_name": {"type": "string"},
        "arguments": {"type": "object"},
    },
    "required": ["tool_name"],
}
_encode = msgspec.json.Encoder().encode


class _Reset(msgspec.Struct):
    index: int | None = None
    seed: int | None = None
    split: str = SPLIT


class _Range(msgspec.Struct):
    split: str
    index: int = 0
    start: int | None = None
    stop: int | None = None


class _Action(msgspec.Struct):
    type: Literal["list_tools", "call_tool"] = "call_tool"
    tool_name: str = ""
    # Not decoded: megabytes of lists would hold the event loop for a second.
    arguments: Raw = Raw(b"{}")


class _McpParams(msgspec.Struct):
    session_id: str = ""
    name: str = ""
    arguments: Raw = Raw(b"{}")


class _Submission(msgspec.Struct):
    answer: str


class _McpCall(msgspec.Struct):
    method: str
    id: int | str | None = None
    params: _McpParams = msgspec.field(default_factory=_McpParams)


class _Message(msgspec.Struct):
    type: Literal["reset", "step", "state", "close"]
    data: Raw = Raw(b"{}")


_decode = msgspec.json.Decoder(_Message).decode
_decode_mcp = msgspec.json.Decoder(_McpCall).decode
_decode_range = msgspec.json.Decoder(_Range).decode
_decode_reset = msgspec.json.Decoder(_Reset).decode
_decode_action = msgspec.json.Decoder(_Action).decode
_decode_submission = msgspec.json.Decoder(_Submission).decode


class _Invalid(Exception):
    """The client's mistake, in words."""


class OpenEnvServer:
    """Serves one environment.

    Args:
        client: is open as long as the server.
        rows: the tasks, as JSON; at least one.
        sessions: connections at a time.
        hosts: host names of the server, in addition to addresses and the machine's own names.
    """

    def __init__(
        self,
        client: Client,
        environment: LoadedEnvironment,
        rows: Sequence[bytes],
        *,
        sessions: int = 64,
        hosts: Sequence[str] = (),
    ) -> None:
        self._client, self._environment, self._rows = client, environment, rows
        self._free = sessions
        # Sessions of clients of /mcp; None is not connected yet. At most as many of these as sessions.
        self._named: dict[str, _Play | None] = {}
        self._most = sessions
        self._hosts = own_names(*hosts)

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/ws", self._session)
        app.router.add_post("/mcp", self._mcp)
        about = {"name": self._environment.name, "description": self._environment.definition.description}
        schemas = {"action": _SCHEMA, "observation": {"type": "object"}, "state": {"type": "object"}}
        for path, said in {"health": {"status": "healthy"}, "metadata": about, "schema": schemas}.items():
            app.router.add_get(f"/{path}", _saying(said))
        app.router.add_get("/list_environments", _saying([about["name"]]))
        app.router.add_get("/{name}/splits", _saying([{"name": SPLIT, "type": "train"}]))
        app.router.add_post("/{name}/{asked:num_tasks|tasks|task_range|task}", self._tasks)
        return app

    async def _tasks(self, request: web.Request) -> web.Response:
        """The Task API: `SPLIT` has a task for each row."""
        name, asked = request.match_info["name"], request.match_info["asked"]
        if name.lower() != self._environment.name.lower():
            return web.json_response({"detail": f"unknown environment {name[:100]!r}"}, status=404)
        try:
            wanted = _decode_range(await request.read())
            _check_split(wanted.split)
        except (*UNREADABLE, _Invalid) as error:
            return web.json_response({"detail": str(error)}, status=422)
        count = len(self._rows)
        if asked == "num_tasks":
            return web.json_response({"num_tasks": count})
        if asked == "task":
            if not 0 <= wanted.index < count:
                return web.json_response({"detail": "Invalid task index"}, status=400)
            return web.json_response({"task": self._task(wanted.index)})
        numbers = range(count)[slice(wanted.start, wanted.stop)] if asked == "task_range" else range(count)
        return web.json_response({"tasks": [*map(self._task, numbers[:PREVIEW])], "env_name": name})

    def _task(self, number: int) -> dict[str, Any]:
        return {"split": SPLIT, "index": number, "prompt": _prompt(self._rows[number])}

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            check_caller(request, self._hosts)
        except Refusal as error:
            return web.json_response({"error": error.problem.message}, status=403)
        return await handler(request)

    async def _session(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=MAX_BYTES, heartbeat=30.0)
        await socket.prepare(request)
        if self._free <= 0:
            await socket.send_str(_problem("CAPACITY_REACHED", "all sessions are in use").decode())
            await socket.close()
            return socket
        name = request.query.get("session_id", "")
        if name and self._named.get(name, self) is not None:
            await socket.send_str(
                _problem("SESSION_ERROR", "there is no such session to connect to").decode()
            )
            await socket.close()
            return socket
        self._free -= 1
        try:
            async with AsyncExitStack() as stack:
                play = _Play(self._client, self._environment, self._rows, stack)
                if name:
                    self._named[name] = play
                async for message in socket:
                    if message.type is not WSMsgType.TEXT or not await play.answer(socket, message.data):
                        break
        finally:
            self._free += 1
            self._named.pop(name, None)
        await socket.close()
        return socket

    async def _mcp(self, request: web.Request) -> web.Response:
        call = _McpCall(method="")
        try:
            call = _decode_mcp(await request.read())
            said = {"result": await self._called(call)}
        except (*UNREADABLE, _Invalid, TaskError) as error:
            said = {"error": {"code": -32602, "message": str(error)[:2000]}}
        except GymError as error:
            said = {"error": {"code": -32603, "message": error.message[:2000]}}
        return web.json_response(body=_encode({"jsonrpc": "2.0", "id": call.id, **said}))

    async def _called(self, call: _McpCall) -> Any:
        params = call.params
        if call.method == "openenv/session/create":
            waiting = [name for name, play in self._named.items() if play is None]
            if len(waiting) >= self._most:  # of clients that never connected
                del self._named[waiting[0]]
            name = secrets.token_urlsafe(18)
            self._named[name] = None
            return {"session_id": name}
        if call.method == "openenv/session/close":
            if self._named.get(params.session_id, self) is None:
                del self._named[params.session_id]
            return {"session_id": params.session_id, "closed": True}
        play = self._named.get(params.session_id)
        if play is None:
            raise _Invalid("connect to /ws?session_id=ID first, with the ID of openenv/session/create")
        if call.method == "tools/list":
            return (await play.acted(_Action(type="list_tools")))["observation"]
        if call.method == "tools/call":
            seen = await play.acted(_Action(tool_name=params.name, arguments=params.arguments))
            return {**seen["observation"], "reward": seen["reward"], "done": seen["done"]}
        raise _Invalid(f"there is no method '{call.method[:100]}'")


class _Play:
    """One connection: a session of the environment at a time, and what was said in it."""

    def __init__(
        self, client: Client, environment: LoadedEnvironment, rows: Sequence[bytes], stack: AsyncExitStack
    ) -> None:
        self._client, self._environment, self._rows, self._stack = client, environment, rows, stack
        self._session: EnvironmentSession | None = None
        self._items: list[dict[str, Any]] = []
        self._steps = 0
        self._done = False
        self._turn = anyio.Lock()  # /mcp acts beside the connection

    async def acted(self, action: _Action) -> dict[str, Any]:
        """What an action leads to: ``observation``, ``reward`` and ``done``."""
        async with self._turn:
            if self._session is None or self._done:
                raise _Invalid("the episode has ended, or not begun: reset first")
            return await self._step(self._session, action)

    async def answer(self, socket: web.WebSocketResponse, text: str) -> bool:
        """Answer a message; whether the connection goes on."""
        try:
            message = _decode(text)
            if message.type == "close":
                return False
            said = await self._said(message)
        except UNREADABLE as error:
            said = _problem("VALIDATION_ERROR", str(error))
        except (_Invalid, TaskError) as error:
            said = _problem("VALIDATION_ERROR", str(error))
        except GymError as error:
            said = _problem("EXECUTION_ERROR", error.message)
        await socket.send_str(said.decode())
        return True

    async def _said(self, message: _Message) -> bytes:
        if message.type == "state":
            return _encode({"type": "state", "data": {"step_count": self._steps, "done": self._done}})
        if message.type == "reset":
            async with self._turn:
                seen = await self._reset(_decode_reset(message.data))
        else:
            seen = await self.acted(_decode_action(message.data))
        return _encode({"type": "observation", "data": seen})

    async def _reset(self, asked: _Reset) -> dict[str, Any]:
        self._session = None
        await self._stack.aclose()
        _check_split(asked.split)
        number = asked.index
        if number is None:
            count = len(self._rows)
            number = secrets.randbelow(count) if asked.seed is None else asked.seed % count
        if not 0 <= number < len(self._rows):
            raise _Invalid(f"there are {len(self._rows)} rows: index is 0 to {len(self._rows) - 1}")
        row = self._rows[number]
        opened = self._client.session(row, environment=self._environment.name)
        self._session = await self._stack.enter_async_context(opened)
        self._items, self._steps, self._done = [], 0, False
        return self._observed({"prompt": _prompt(row), "observation": self._session.observation or None})

    async def _step(self, session: EnvironmentSession, action: _Action) -> dict[str, Any]:
        if action.type == "list_tools":
            return self._observed({"tools": [*map(_listed, session.tools), _SUBMIT]})
        self._steps += 1
        if action.tool_name == SUBMIT:
            return await self._submitted(session, action.arguments)
        if action.tool_name not in {one["name"] for one in session.tools}:
            raise _Invalid(f"there is no tool '{action.tool_name[:100]}'")
        call_id, arguments = f"call_{self._steps}", _object(action.arguments)
        call = {"type": "function_call", "call_id": call_id, "name": action.tool_name, "arguments": arguments}
        if self._environment.definition.shape == "episode":
            return await self._stepped(session, call)
        output: Content = await session.call(action.tool_name, arguments)
        self._items += [call, {"type": "function_call_output", "call_id": call_id, "output": output}]
        return self._observed({"tool_name": action.tool_name, "result": output})

    async def _submitted(self, session: EnvironmentSession, arguments: Raw) -> dict[str, Any]:
        try:
            answer = _decode_submission(arguments).answer
        except UNREADABLE as error:
            raise _Invalid(f"{SUBMIT} takes a text, 'answer'") from error
        message: dict[str, Any] = {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": answer, "annotations": []}],
        }
        if self._environment.definition.shape == "episode":
            return await self._stepped(session, message)
        self._items.append(message)
        return await self._judged(session, {})

    async def _stepped(self, session: EnvironmentSession, item: dict[str, Any]) -> dict[str, Any]:
        seen = await session.step([item])
        self._items += [item, *seen.items]
        shown = {"observation": seen.items}
        if seen.terminated or seen.truncated:
            return await self._judged(session, shown)
        return self._observed(shown)

    async def _judged(self, session: EnvironmentSession, shown: dict[str, Any]) -> dict[str, Any]:
        verdict = await session.verify(self._items)
        self._done = True
        return self._observed(shown, verdict.reward)

    def _observed(self, observation: dict[str, Any], reward: float | None = None) -> dict[str, Any]:
        return {"observation": observation, "reward": reward, "done": self._done}


def _prompt(row: bytes) -> Any:
    return msgspec.json.decode(row)["responses_create_params"].get("input")


def _object(raw: Raw) -> str:
    """A call's arguments as text; null for none."""
    text = "{}" if is_null(raw) else bytes(raw).decode()
    if not text.startswith("{"):
        raise _Invalid(f"arguments: an object is expected, not {text[:100]}")
    return text


def _check_split(name: str) -> None:
    if name != SPLIT:
        raise _Invalid(f"there is no split '{name[:100]}', only '{SPLIT}'")


_SUBMIT = {"name": SUBMIT, "description": "Give the final answer.", "input_schema": _PARAMETERS}


def _listed(tool: dict[str, Any]) -> dict[str, Any]:
    about = {"name": tool["name"], "description": tool.get("description") or ""}
    return {**about, "input_schema": tool.get("parameters") or {"type": "object"}}


def _problem(code: str, message: str) -> bytes:
    return _encode({"type": "error", "data": {"message": message[:2000], "code": code}})


def _saying(said: object) -> Any:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=_encode(said), content_type="application/json")

    return answer
