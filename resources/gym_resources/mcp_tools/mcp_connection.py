"""A connection to an MCP server, over HTTP or to a program in the sandbox. The server is not trusted.

Nothing that it says is followed: no redirect, no link in a result, no ``$ref`` out of a schema. What it asks
the client for is refused, and what it announces is not read.

Source: the Model Context Protocol, revisions 2025-11-25 and 2026-07-28.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, Protocol

import aiohttp
import anyio
import msgspec
from anyio.lowlevel import checkpoint
from gym_runtime import ResourceError, SessionLost, UsageError
from gym_runtime.errors import UNREADABLE
from gym_sandbox import Limits, Sandbox, python_command
from gym_sandbox.frames import decoded
from gym_sandbox.processes import Child, EndOfProcess
from msgspec import UNSET, Raw, UnsetType

from gym_resources.mcp_tools.listed_tools import Listed, McpTool, checked, cleaned

MAX_BYTES = 4 * 2**20
"""Of all that a server says until it has answered a request."""
MAX_MESSAGES = 10_000
"""Of them, too: notes and requests of its own come before its answer."""
MAX_TOOLS = 256
CONNECT_S = 10.0
CALL_S, NOTE_S = 120.0, 5.0
"""That a server may take for an answer, and for reading that no answer is awaited any more."""
WORDS_S, WORDS_CHARS = 10.0, 500
"""Of a program that does not start."""
OLD, NEW = "2025-11-25", "2026-07-28"
_NO_METHOD, _BAD_PARAMS, _NO_VERSION = -32601, -32602, -32022
_SHAKE_HANDS_NOT = (400, 404, 405)
_CLIENT = {"name": "gym-runtime", "version": "1"}
_META = "io.modelcontextprotocol/"
_encode = msgspec.json.Encoder().encode


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that an operator names; rows never do.

    Attributes:
        url: its address; or
        command: a program that speaks MCP on its standard input and output. It runs in the sandbox, without
            a network, a new one for each session. ``python`` is the sandbox's Python.
        folders: what the program may read, besides `/usr` and Python.
        packages: distributions that its Python can import, if they are installed.
        key_variable: the environment variable of this worker that holds the key of `url`.
        headers: of each request to `url`; secrets, which no error shows.
        call_s: how long it may take for an answer, in seconds.
    """

    url: str = ""
    command: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    key_variable: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    call_s: float = CALL_S

    @property
    def name(self) -> str:
        return self.url or " ".join(self.command)[:200]


class McpResult(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's answer, with MCP's content blocks."""

    content: list[dict[str, Any]] = []
    structured: Raw = msgspec.field(name="structuredContent", default=Raw(b"null"))
    is_error: bool = msgspec.field(name="isError", default=False)
    kind: str = msgspec.field(name="resultType", default="complete")


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Message(msgspec.Struct):
    id: int | str | UnsetType | None = UNSET
    method: str = ""
    result: Raw | UnsetType = UNSET
    error: _Error | None = None


class _List(msgspec.Struct):
    tools: list[Listed]
    cursor: str | None = msgspec.field(name="nextCursor", default=None)


_decode = msgspec.json.Decoder(_Message).decode
_decode_list = msgspec.json.Decoder(_List).decode
_decode_result = msgspec.json.Decoder(McpResult).decode


class _Refused(Exception):
    """The server answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(cleaned(message, 2000))
        self.code = code


class _Late(ResourceError):
    """The server did not answer in time."""


class Wire(Protocol):
    """How messages travel."""

    def exchange(
        self, request: Mapping[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[bytes, bytes | None]:
        """The messages that follow a request, until the caller has its answer; a note has none."""
        ...


class Connection:
    """One session's connection; closed at the end of its ``async with`` block.

    Args:
        wire: carries the messages, in place of what the server's address or command makes.
    """

    def __init__(self, server: McpServer, wire: Wire | None = None) -> None:
        self._server = server
        self._stack = AsyncExitStack()
        self._wire: Wire | None = wire
        self._number = 0
        self._new = False

    async def __aenter__(self) -> Connection:
        """
        Raises:
            SessionLost: the server cannot be reached.
            ResourceError: it does not speak MCP.
        """
        try:
            if self._wire is None:
                wire = _Http(self._server) if self._server.url else _Pipe(self._server)
                self._wire = await self._stack.enter_async_context(wire)
            await self._begin()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _begin(self) -> None:
        about = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": _CLIENT}
        try:
            await self._ask("initialize", about)
        except _Refused as error:
            if error.code not in (_NO_METHOD, _NO_VERSION, *_SHAKE_HANDS_NOT):
                raise ResourceError(f"{self._server.name} refuses to begin: {error}") from error
            self._new = True  # its revision has no handshake
        else:
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self._tell(note, self._server.call_s)

    async def tools(self) -> list[McpTool]:
        """All its tools, in its order.

        Raises:
            SessionLost: the connection is lost.
            ResourceError: there is no list, it is too long, or a tool's schema is not one that models can be
                given.
        """
        found: list[McpTool] = []
        cursor: str | None = None
        while True:
            params = {} if cursor is None else {"cursor": cursor}
            try:
                said = await self._answer("tools/list", params, _decode_list)
            except _Refused as error:
                raise ResourceError(f"{self._server.name} refuses to list its tools: {error}") from error
            found += [checked(self._server.name, one) for one in said.tools]
            if len(found) > MAX_TOOLS:
                raise ResourceError(f"{self._server.name} lists more than {MAX_TOOLS} tools")
            if not said.cursor or not said.tools:
                return found
            cursor = said.cursor

    async def call(self, tool: str, arguments: dict[str, Any]) -> McpResult:
        """Call a tool. A call that the server refuses, or does not answer in time, is an answer with
        ``is_error``.

        Raises:
            SessionLost: the connection is lost.
            ResourceError: the server failed, or answered what is no result.
        """
        try:
            said = await self._answer("tools/call", {"name": tool, "arguments": arguments}, _decode_result)
            if said.kind == "complete":
                return said
            problem = (
                f"'{tool}' has no result: it asks for what this client does not offer ({said.kind[:50]})"
            )
        except _Refused as error:
            if error.code != _BAD_PARAMS:
                raise ResourceError(f"{self._server.name} failed in '{tool}': {error}") from error
            problem = str(error)
        except _Late:
            problem = f"'{tool}' did not answer within {self._server.call_s:g} s"
            told = {"requestId": self._number, "reason": problem}
            with suppress(ResourceError):  # a further call would find it, too
                note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": told}
                await self._tell(note, NOTE_S)
        return McpResult(content=[{"type": "text", "text": problem}], is_error=True)

    async def _answer(self, method: str, params: dict[str, Any], decode: Any) -> Any:
        said = await self._ask(method, params)
        try:
            return decoded(decode, bytes(said))
        except UNREADABLE as error:
            raise ResourceError(f"{self._server.name} answered {method} with no result: {error}") from error

    async def _ask(self, method: str, params: dict[str, Any]) -> Raw:
        self._number += 1
        headers = {"mcp-protocol-version": NEW if self._new else OLD}
        if self._new:
            meta = {"protocolVersion": NEW, "clientInfo": _CLIENT, "clientCapabilities": {}}
            params = {**params, "_meta": {_META + name: value for name, value in meta.items()}}
            headers |= {"mcp-method": method}
            if method == "tools/call":
                headers |= {"mcp-name": params["name"]}
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        assert self._wire is not None
        with anyio.move_on_after(self._server.call_s):
            return await self._received(method, self._wire.exchange(request, headers))
        # Of the request for the tools' list and of the beginning, a model has nothing to read.
        limit = f"{self._server.call_s:g} s; call_s allows more"
        raise _Late(f"{self._server.name} did not answer {method} within {limit}")

    async def _received(self, method: str, messages: AsyncGenerator[bytes, bytes | None]) -> Raw:
        """The result among the messages that follow a request."""
        reply: bytes | None = None
        message, size = b"", 0
        try:
            for _ in range(MAX_MESSAGES):
                # A server that writes faster than it is read never lets the loop wait.
                await checkpoint()
                try:
                    message = await messages.asend(reply)
                    size += len(message)
                    if size > MAX_BYTES:
                        raise _too_much(self._server.name)
                    # An empty line, or the event without data that begins a stream which can be resumed.
                    if not message or message.isspace():
                        reply = None
                        continue
                    said = _decode(message)
                except StopAsyncIteration:
                    raise SessionLost(f"{self._server.name} did not answer {method}") from None
                except UNREADABLE as error:
                    what = f"{self._server.name} sent an invalid message ({error}): {_start(message)}"
                    raise ResourceError(what) from error
                # A request of the server's: it may wait for the answer.
                reply = _refusal(said) if said.method and said.id is not UNSET else None
                if said.method or said.id != self._number:
                    continue
                if said.error is not None:
                    raise _Refused(said.error.code, said.error.message)
                if said.result is UNSET:
                    raise ResourceError(f"{self._server.name} answered {method} without a result")
                return said.result
            raise ResourceError(f"{self._server.name} sent {MAX_MESSAGES:,} messages, and not its answer")
        finally:
            await messages.aclose()

    async def _tell(self, note: Mapping[str, Any], limit_s: float) -> None:
        assert self._wire is not None
        with anyio.move_on_after(limit_s):
            async for _ in self._wire.exchange(note, {"mcp-protocol-version": NEW if self._new else OLD}):
                pass


def _too_much(name: str) -> ResourceError:
    return ResourceError(f"{name} answered more than {MAX_BYTES >> 20} MiB")


def _refusal(said: _Message) -> bytes:
    if said.method == "ping":
        return _encode({"jsonrpc": "2.0", "id": said.id, "result": {}})
    error = {"code": _NO_METHOD, "message": "this client offers nothing"}
    return _encode({"jsonrpc": "2.0", "id": said.id, "error": error})


class _Http:
    """POSTs; an answer is one message, or a stream of events with messages."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        headers = {"accept": "application/json, text/event-stream", "accept-encoding": "identity"}
        headers |= dict(server.headers)
        if server.key_variable:
            if not (key := os.environ.get(server.key_variable, "")):
                raise UsageError(f"{server.key_variable} is not set: it holds the key of {server.url}")
            headers["authorization"] = f"Bearer {key}"
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),  # the rollout has the deadline
            auto_decompress=False,  # a small answer may decompress to gigabytes
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
        )
        self._session = ""

    async def __aenter__(self) -> _Http:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._session:  # a server keeps it until it is told of its end
                with anyio.move_on_after(NOTE_S, shield=True), suppress(aiohttp.ClientError, OSError):
                    async with self._sent("DELETE", None, {"mcp-protocol-version": OLD}):
                        pass
        finally:
            await self._http.close()

    def _sent(self, method: str, body: bytes | None, headers: Mapping[str, str]) -> Any:
        session = {"mcp-session-id": self._session} if self._session else {}
        headers = {**headers, **session, "content-type": "application/json"}
        return self._http.request(method, self._server.url, data=body, headers=headers, allow_redirects=False)

    async def exchange(
        self, request: Mapping[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[bytes, bytes | None]:
        url = self._server.url
        try:
            async with self._sent("POST", _encode(request), headers) as answer:
                self._session = self._session or answer.headers.get("mcp-session-id", "")
                if answer.status == 202 or "id" not in request:
                    return
                if answer.content_type == "text/event-stream":
                    async for message in _events(answer, url):
                        if reply := (yield message):
                            async with self._sent("POST", reply, headers):
                                pass
                    return
                body = b"".join([piece async for piece in _within(answer.content.iter_any(), url)])
                if answer.content_type == "application/json" and (
                    answer.status < 400 or _is_answer(body, request["id"])
                ):
                    yield body
                    return
                if request["method"] == "initialize" and answer.status in _SHAKE_HANDS_NOT:
                    raise _Refused(answer.status, "it knows no handshake")
                said = _start(body) or cleaned(answer.headers.get("location", ""), 300)
                raise ResourceError(f"{url} answered {answer.status} to {request['method']}: {said}")
        except (aiohttp.ClientError, ConnectionError, TimeoutError, ValueError) as error:
            raise SessionLost(f"{url} cannot be reached: {type(error).__name__}: {error}") from error


def _start(said: bytes) -> str:
    """The beginning of what a server said, in one line."""
    return cleaned(" ".join(said[:500].decode(errors="replace").split()), 300)


def _is_answer(body: bytes, number: int) -> bool:
    try:
        return _decode(body).id == number
    except UNREADABLE:
        return False


async def _within(pieces: Any, name: str) -> AsyncGenerator[bytes]:
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > MAX_BYTES:
            raise _too_much(name)
        yield piece


async def _events(answer: aiohttp.ClientResponse, url: str) -> AsyncGenerator[bytes]:
    """The data of each event of a stream."""
    lines, data = Lines(), list[bytes]()
    async for piece in _within(answer.content.iter_any(), url):
        for line in lines.add(piece):
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data.clear()


class Lines:
    """The lines of a stream that comes in pieces; the work is proportional to its bytes.

    Attributes:
        begun: the bytes of the line that has no end yet.
    """

    def __init__(self) -> None:
        self.begun = bytearray()

    def add(self, piece: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        first, *more = piece.split(b"\n")
        self.begun += first
        if not more:
            return []
        whole = [bytes(self.begun), *more[:-1]]
        self.begun = bytearray(more[-1])
        return whole


class _Pipe:
    """Lines on the standard input and output of a program in the sandbox."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._stack = AsyncExitStack()
        self._child: Child | None = None
        self._answered = self._cut = False
        self._lines, self._whole = Lines(), deque[bytes]()

    async def __aenter__(self) -> _Pipe:
        server = self._server
        program = list(server.command)
        if program[0] == "python":
            program[:1] = python_command()
        self._program = program
        limits = Limits(memory_bytes=2 << 30)
        self._sandbox = Sandbox(limits, packages=server.packages, folders=server.folders)
        try:
            await self._stack.enter_async_context(self._sandbox)
            self._child = await self._stack.enter_async_context(self._sandbox.start(program))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def exchange(
        self, request: Mapping[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[bytes, bytes | None]:
        assert self._child is not None
        try:
            await self._write(_encode(request))
            while "id" in request:
                line = await self._line()
                self._answered = True
                if reply := (yield line):
                    await self._write(reply)
        except EndOfProcess as error:
            if self._answered:
                raise SessionLost(f"{self._server.name} has ended") from error
            # Run once more for its words: while it is used, they are not read.
            ended = await self._sandbox.run(self._program, timeout_s=WORDS_S)
            said = cleaned(ended.stderr.decode(errors="replace").strip()[-WORDS_CHARS:], WORDS_CHARS)
            raise ResourceError(f"{self._server.name} does not start: {said}") from error

    async def _write(self, message: bytes) -> None:
        assert self._child is not None
        if self._cut:
            raise ResourceError(f"{self._server.name} does not read what it is sent")
        self._cut = True  # should it be cancelled in the middle of a line
        await self._child.write(message + b"\n")
        self._cut = False

    async def _line(self) -> bytes:
        assert self._child is not None
        while not self._whole:
            piece = await self._child.read()
            if not piece:
                raise EndOfProcess
            self._whole += self._lines.add(piece)
            if len(self._lines.begun) > MAX_BYTES:
                raise _too_much(self._server.name)
        return self._whole.popleft()
