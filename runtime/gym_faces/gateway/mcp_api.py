"""Tools over MCP, the Model Context Protocol: one POST, one answer, and nothing kept between two requests.

Both forms of the protocol are read. Up to revision 2025-11-25 a client begins with ``initialize``; from
2026-07-28 on there is no handshake, and each request says its revision in its headers and again in
``params._meta``, which must agree. Clients that know both ask ``server/discover`` first. No session id is
given out: some clients do not send it back. Whose tools they are follows from the gateway's address or key.

Tools that an environment offers later are in the next list. A client of the handshake that takes streams is
told so before the answer to its call, in a stream that ends with that answer; with 2026-07-28, clients keep
no list.

A call goes on when its client leaves, because it may have changed the environment already. The same request,
byte by byte, then gets its answer.

Source: the revisions 2025-11-25 and 2026-07-28 of the protocol, as mcp 2.3 sends and reads them.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

import anyio
import msgspec
from anyio.abc import TaskGroup
from gym_runtime.errors import UNREADABLE, GymError
from gym_runtime.messages import FunctionCallOutput, Part
from gym_runtime.version import VERSION
from msgspec import UNSET, Raw, UnsetType

from gym_faces.dialects.pieces import encode, is_null

MAX_BYTES = 4 * 2**20
"""Of a request, as in the SDK."""
MAX_UNREAD = 256
"""Calls whose answers were not read, at most; the oldest is forgotten first."""
MAX_CALLS, MAX_CALLS_BYTES = 64, 16 * 2**20
"""Calls in progress and their arguments, also those of clients that have left."""

NEW = "2026-07-28"
OLD = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")

_PARSE, _REQUEST, _METHOD, _PARAMS, _INTERNAL = -32700, -32600, -32601, -32602, -32603
_MISMATCH, _VERSION = -32020, -32022
_STATUS = {_PARSE: 400, _REQUEST: 400, _METHOD: 404, _PARAMS: 400, _MISMATCH: 400, _VERSION: 400}
"""The statuses of errors in the new revision; in the old ones, an error's status is 200 once it has an id."""
_NEW_FIELDS = {"resultType": "complete"}
_UNCACHED = {"ttlMs": 0, "cacheScope": "private"}
_CHANGED = encode({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
_INFO = {"name": "gym-runtime", "version": VERSION}


class _Meta(msgspec.Struct):
    version: str | None = msgspec.field(name="io.modelcontextprotocol/protocolVersion", default=None)
    capabilities: Raw | UnsetType = msgspec.field(
        name="io.modelcontextprotocol/clientCapabilities", default=UNSET
    )


class _Params(msgspec.Struct):
    meta: _Meta | None = msgspec.field(name="_meta", default=None)
    name: str = ""
    arguments: Raw = Raw(b"{}")
    protocol_version: str = msgspec.field(name="protocolVersion", default="")


class _Request(msgspec.Struct):
    method: str
    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType = UNSET
    params: _Params | None = None


class _Function(msgspec.Struct):
    type: str = ""
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Request).decode
_decode_function = msgspec.json.Decoder(_Function).decode


class Called(NamedTuple):
    """What a tool answered.

    Attributes:
        content: MCP's content blocks, such as ``{"type": "text", "text": …}``.
        failed: the text says why the call failed.
    """

    content: list[dict[str, Any]]
    failed: bool


class Answer(NamedTuple):
    """An HTTP answer; without a body for a notification.

    Attributes:
        events: the body is a stream of server-sent events.
    """

    status: int
    body: bytes
    events: bool = False


CallTool = Callable[[str, str], Awaitable[Called]]
"""``call(name, arguments)``: the arguments are a JSON object as text."""


class _Call:
    """A call in progress, or over."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.outcome: Called | GymError | None = None


class _Problem(Exception):
    def __init__(self, code: int, message: str, **data: object) -> None:
        super().__init__(message)
        self.code = code
        self.error = {"code": code, "message": message, **({"data": data} if data else {})}


class ToolServer:
    """Answers MCP requests for the function tools of one rollout.

    Args:
        tools: gives them as in ``responses_create_params``, and another list when there are others; those
            that are no functions are left out.
        call: executes a call of one of them; raises `GymError` if it cannot be executed.
        tasks: where calls run.
    """

    def __init__(self, tools: Callable[[], Sequence[Raw]], call: CallTool, tasks: TaskGroup) -> None:
        self._tools = tools
        self._seen: Sequence[Raw] | None = None
        self._told: Sequence[Raw] | None = None
        self._listed: dict[str, dict[str, Any]] = {}
        self._tasks = tasks
        self._unread: dict[bytes, _Call] = {}  # by the digest of the request
        self._running = self._running_bytes = 0
        self._call = call

    @property
    def names(self) -> Collection[str]:
        """Of the tools that there are now."""
        return self._now().keys()

    def _now(self) -> dict[str, dict[str, Any]]:
        """The tools as they are listed, by their names."""
        tools = self._tools()
        if tools is not self._seen:
            self._seen = tools
            functions = [one for one in map(_decode_function, tools) if one.type == "function"]
            self._listed = {
                one.name: {
                    "name": one.name,
                    "description": one.description or "",
                    "inputSchema": {"type": "object", **(one.parameters or {})},
                }
                for one in functions
            }
        return self._listed

    def _news(self) -> bool:
        """Whether there are other tools than the client was told of; it is told now."""
        self._now()
        told, self._told = self._told, self._seen
        return told is not None and told is not self._seen

    @asynccontextmanager
    async def answering(self, headers: Mapping[str, str], body: bytes) -> AsyncGenerator[Answer]:
        """The answer to a request. If the context raises, the client has not read it.

        Args:
            headers: the request's, by name in any case.
        """
        begun: dict[bytes, _Call] = {}
        try:
            yield await self._answer(headers, body, begun)
        except BaseException:
            for digest, call in begun.items():
                self._unread[digest] = call
                if len(self._unread) > MAX_UNREAD:
                    self._unread.pop(next(iter(self._unread)))
            raise

    async def answer_line(self, line: bytes) -> bytes:
        """The answer to a request on a standard input, which has no headers; empty for a notification.

        A line before it says that there are other tools than the client was told of.
        """
        headers: dict[str, str] = {}
        try:
            said = _read(line)
            if said.params is not None and said.params.meta is not None and said.params.meta.version:
                version = said.params.meta.version
                headers = {"mcp-protocol-version": version, "mcp-method": said.method}
                headers["mcp-name"] = said.params.name
        except _Problem:
            pass  # it is the answer's, too
        body = (await self._answer(headers, line, {})).body
        return _CHANGED + b"\n" + body if body and not headers and self._news() else body

    async def _answer(self, headers: Mapping[str, str], body: bytes, begun: dict[bytes, _Call]) -> Answer:
        new, said = headers.get("mcp-protocol-version", OLD[0]) not in OLD, None
        try:
            said = _read(body)
            params = said.params or _Params()
            new = new or (params.meta is not None and params.meta.version is not None)
            if new:
                _check_new(headers, said, params)
            if said.id is UNSET:
                return Answer(202, b"")
            if said.method == "tools/call":
                digest = hashlib.sha256(body).digest()
                call = begun[digest] = self._unread.pop(digest, None) or self._begin(params)
                result = await self._called(call)
                if not new and "text/event-stream" in headers.get("accept", "") and self._news():
                    said_now = _answer(200, said.id, result=result).body
                    events = (b"event: message\ndata: %b\n\n" % one for one in (_CHANGED, said_now))
                    return Answer(200, b"".join(events), events=True)
            else:
                result = {**self._said(said.method, params), **(_UNCACHED if new else {})}
            return _answer(200, said.id, result={**result, **(_NEW_FIELDS if new else {})})
        except _Problem as problem:
            known = said is not None and said.id is not UNSET
            status = 200 if known and not new else _STATUS.get(problem.code, 200)
            return _answer(status, said.id if said is not None and known else None, error=problem.error)

    def _said(self, method: str, params: _Params) -> dict[str, Any]:
        match method:
            case "server/discover":
                about: dict[str, Any] = {"supportedVersions": [NEW, *OLD], "capabilities": {"tools": {}}}
                return {**about, "_meta": {"io.modelcontextprotocol/serverInfo": _INFO}}
            case "initialize":
                version = params.protocol_version if params.protocol_version in OLD else OLD[0]
                able = {"tools": {"listChanged": True}}
                return {"protocolVersion": version, "capabilities": able, "serverInfo": _INFO}
            case "ping":
                return {}
            case "tools/list":
                self._news()
                return {"tools": list(self._now().values())}
            case _:
                raise _Problem(_METHOD, f"there is no method '{method[:100]}'")

    def _begin(self, params: _Params) -> _Call:
        if params.name not in self.names:
            raise _Problem(_PARAMS, f"there is no tool '{params.name[:100]}'")
        # Some clients write null for no arguments.
        arguments = b"{}" if is_null(params.arguments) else bytes(params.arguments)
        if not arguments.startswith(b"{"):  # decoding megabytes of fields would block the event loop
            raise _Problem(_PARAMS, "the arguments are not an object")
        try:
            text = arguments.decode()
        except UNREADABLE as error:
            raise _Problem(_PARAMS, f"the arguments are not UTF-8: {error}") from error
        size = len(arguments)
        if self._running >= MAX_CALLS or self._running_bytes + size > MAX_CALLS_BYTES:
            most = f"{MAX_CALLS} calls, of {MAX_CALLS_BYTES >> 20} MiB together"
            raise _Problem(
                _INTERNAL, f"too many calls are in progress; wait for their answers (at most {most})"
            )
        self._running += 1
        self._running_bytes += size
        call = _Call()
        self._tasks.start_soon(self._run, call, params.name, text, size)
        return call

    async def _run(self, call: _Call, name: str, arguments: str, size: int) -> None:
        try:
            call.outcome = await self._call(name, arguments)
        except GymError as error:
            call.outcome = error
        finally:
            self._running -= 1
            self._running_bytes -= size
            call.over.set()

    async def _called(self, call: _Call) -> dict[str, Any]:
        await call.over.wait()
        if isinstance(outcome := call.outcome, Called):
            return {"content": outcome.content, "isError": outcome.failed}
        raise _Problem(_INTERNAL, "the rollout is over" if outcome is None else outcome.message)


def _read(body: bytes) -> _Request:
    try:
        return _decode(body)
    except msgspec.ValidationError as error:
        raise _Problem(_REQUEST, f"the body must be one JSON-RPC request: {error}") from error
    except UNREADABLE as error:
        raise _Problem(_PARSE, f"the body is not JSON: {error}") from error


def _check_new(headers: Mapping[str, str], said: _Request, params: _Params) -> None:
    """
    Raises:
        _Problem: the headers do not say what the body says, or the revision is unknown.
    """
    version = headers.get("mcp-protocol-version")
    if said.id is not UNSET:
        if params.meta is None or params.meta.version is None or params.meta.capabilities is UNSET:
            raise _Problem(_PARAMS, "params._meta must have protocolVersion and clientCapabilities")
        repeated = {"mcp-protocol-version": params.meta.version, "mcp-method": said.method}
        if said.method == "tools/call":
            repeated["mcp-name"] = params.name
        for name, value in repeated.items():
            if headers.get(name) != value:
                raise _Problem(_MISMATCH, f"the header {name} does not repeat the body's value")
    if version != NEW:
        raise _Problem(_VERSION, "the protocol version is not supported", supported=[NEW], requested=version)


def _answer(status: int, request_id: int | str | UnsetType | None, **outcome: object) -> Answer:
    return Answer(status, encode({"jsonrpc": "2.0", "id": request_id, **outcome}))


def content_of(output: FunctionCallOutput) -> list[dict[str, Any]]:
    """A tool's output as MCP's content blocks."""
    if isinstance(output.output, str):
        return [{"type": "text", "text": output.output}]
    return [_block(part) for part in output.output]


def _block(part: Part) -> dict[str, Any]:
    if part.image_url is None:
        return {"type": "text", "text": part.text or ""}
    kind, _, data = part.image_url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "data": data, "mimeType": kind}
