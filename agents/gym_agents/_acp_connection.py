"""A program that speaks the Agent Client Protocol, version 1: JSON-RPC on its standard input and output.

It is a foreign program, so it may say anything, at any length, or nothing. What breaks the protocol ends the
connection with an error; what does no harm is passed over: updates, lines that are no JSON, answers that come
too late. What it asks of us is answered at once, for an agent that waits for a permission waits for ever.

Source: the schema v1.19 of the protocol, as agent-client-protocol 0.12 reads and writes it.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import msgspec
from anyio.lowlevel import checkpoint
from gym_runtime import ResourceError
from gym_runtime.errors import UNREADABLE
from gym_runtime.escapes import shown
from gym_sandbox.processes import Child, EndOfProcess
from msgspec import UNSET, Raw, UnsetType

from gym_agents._workplace import SIGNALS

MAX_LINE_BYTES = 32 * 2**20
LONG_BYTES = 2**20
"""From here on a line is decoded in a thread, because it takes milliseconds."""
LINES_AT_ONCE = 200
"""So many are taken in some milliseconds; then others have their turn."""
MAX_UNREAD = 1000
"""Messages that the program does not read."""
MAX_ID_BYTES = 200
MAX_SHOWN_CHARS = 2**18
CANCEL_S = 2.0
"""How long the end of a cancelled turn is awaited before the program is killed."""
LAST_WORDS_BYTES = 2000
LAST_WORDS_S = 0.5
SAID_CHARS = 500

_METHOD_NOT_FOUND, _INVALID_PARAMS = -32601, -32602
_ALLOW, _REFUSE = ("allow_once", "allow_always"), ("reject_once", "reject_always")

T = TypeVar("T")


class _Line(msgspec.Struct):
    """A request, a notification or an answer."""

    id: Raw | UnsetType = UNSET
    method: str | None = None
    params: Raw = Raw(b"null")
    result: Raw | UnsetType = UNSET
    error: Raw = Raw(b"null")


class _Problem(msgspec.Struct):
    message: str = ""
    code: int = 0
    data: Any = None


class _Option(msgspec.Struct):
    id: str = msgspec.field(name="optionId")
    kind: str = ""


class _Permission(msgspec.Struct):
    options: list[_Option]


class _Shown(msgspec.Struct):
    text: str = ""


class _Update(msgspec.Struct):
    kind: str = msgspec.field(name="sessionUpdate")
    content: _Shown | list[Any] | None = None


class _Notice(msgspec.Struct):
    update: _Update


_encode = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(_Line).decode
_decode_number = msgspec.json.Decoder(int).decode
_decode_problem = msgspec.json.Decoder(_Problem).decode
_decode_update = msgspec.json.Decoder(_Notice).decode
_decode_permission = msgspec.json.Decoder(_Permission).decode


class _Asked:
    """A request of ours, which is over when it has an answer or the connection is."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.result: Raw | ResourceError | None = None

    def end(self, result: Raw | ResourceError) -> None:
        self.result = result
        self.over.set()


class AcpConnection:
    """The client's side of the protocol.

    Args:
        program: its name, for errors.
        allow: whether it gets the permissions that it asks for.

    Attributes:
        asked_permissions: how often it has asked for one.
    """

    def __init__(self, child: Child, program: str, *, allow: bool) -> None:
        self.asked_permissions = 0
        self._child = child
        self._program = program
        self._allow = allow
        self._waiting: dict[int, _Asked] = {}
        self._count = 0
        self._failure: ResourceError | None = None
        self._unwritten: deque[bytes] = deque()
        self._more = anyio.Event()
        # Goes on while a cancelled rollout tells the program so.
        self._listening = anyio.CancelScope(shield=True)
        self._eof = anyio.Event()
        self._words = b""
        self._chunks: list[str] = []
        self._chars = 0

    @property
    def said(self) -> str:
        """The text that it has shown to its user since the last prompt; of a long one its end."""
        return "".join(self._chunks)[-MAX_SHOWN_CHARS:]

    # -- requests ---------------------------------------------------------------------------------------

    async def call(self, method: str, params: Mapping[str, Any], kind: type[T]) -> T:
        """Ask it something.

        Raises:
            ResourceError: it refuses, breaks the protocol or ends.
        """
        asked, number = self._begin(method, params)
        try:
            await asked.over.wait()
        finally:
            del self._waiting[number]
        return self._read(method, asked, kind)

    async def prompt(self, session: str, blocks: Sequence[Mapping[str, Any]], kind: type[T]) -> T:
        """One turn of a session. If it is cancelled, the program is told so, and has `CANCEL_S` to end it.

        Raises:
            ResourceError: as `call`.
        """
        self._chunks, self._chars = [], 0
        asked, number = self._begin("session/prompt", {"sessionId": session, "prompt": blocks})
        try:
            await asked.over.wait()
        finally:
            if not asked.over.is_set() and self._failure is None:
                self._send({"method": "session/cancel", "params": {"sessionId": session}})
                with anyio.move_on_after(CANCEL_S, shield=True):
                    await asked.over.wait()
            del self._waiting[number]
        return self._read("session/prompt", asked, kind)

    def _begin(self, method: str, params: Mapping[str, Any]) -> tuple[_Asked, int]:
        if self._failure is not None:
            raise self._failure
        asked, number = _Asked(), self._count
        self._count += 1
        self._waiting[number] = asked
        self._send({"id": number, "method": method, "params": params})
        return asked, number

    def _read(self, method: str, asked: _Asked, kind: type[T]) -> T:
        if isinstance(asked.result, ResourceError):
            raise asked.result
        try:
            return msgspec.json.decode(asked.result or b"null", type=kind)
        except UNREADABLE as error:
            raise self._error(f"answers {method} with something else: {error}") from error

    def _error(self, words: str, *, retryable: bool = False) -> ResourceError:
        error = ResourceError(f"the agent {self._program} {shown(words)[: 2 * SAID_CHARS]}", stage="agent")
        error.retryable = retryable
        return error

    def _send(self, message: Mapping[str, Any]) -> None:
        self._unwritten.append(_encode({"jsonrpc": "2.0", **message}) + b"\n")
        self._more.set()
        if len(self._unwritten) > MAX_UNREAD:
            self._fail(self._error("does not read what it has asked for"))

    def _fail(self, error: ResourceError) -> None:
        """The connection is over by this error; the first one counts."""
        self._failure = self._failure or error
        for asked in self._waiting.values():
            if not asked.over.is_set():
                asked.end(self._failure)

    # -- what it says ------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Take what it says, until `stop`."""
        with self._listening:
            async with anyio.create_task_group() as tasks:
                for work in (self._write, self._hear, self._hear_errors, self._await_end):
                    tasks.start_soon(work)

    def stop(self) -> None:
        """End `listen`, also if it has not begun."""
        self._listening.cancel()

    async def _write(self) -> None:
        with suppress(EndOfProcess):  # `_await_end` says why
            while True:
                while self._unwritten:
                    await self._child.write(self._unwritten.popleft())
                self._more = anyio.Event()
                await self._more.wait()

    async def _hear(self) -> None:
        buffer, searched, lines = bytearray(), 0, 0
        while piece := await self._child.read():
            buffer += piece
            while (end := buffer.find(b"\n", searched)) >= 0:
                line, searched = bytes(buffer[:end]), 0
                del buffer[: end + 1]
                await self._take(line)
                lines += 1
                if not lines % LINES_AT_ONCE:
                    await checkpoint()
            searched = len(buffer)
            if searched > MAX_LINE_BYTES:
                self._fail(self._error(f"writes a line of more than {MAX_LINE_BYTES >> 20} MiB"))
                return
            await checkpoint()  # reading what is there already does not wait
        self._eof.set()
        with anyio.move_on_after(LAST_WORDS_S):
            await self._child.wait()
        if self._child.exit_code is None:
            self._fail(self._error("has closed its standard output"))

    async def _hear_errors(self) -> None:
        while piece := await self._child.read(errors=True):
            self._words = (self._words + piece)[-LAST_WORDS_BYTES:]
            await checkpoint()

    async def _await_end(self) -> None:
        code = await self._child.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)  # its children keep the pipes open
        with anyio.move_on_after(LAST_WORDS_S):
            await self._eof.wait()
        words = self._words.decode(errors="replace").strip() or "without a word"
        # What was killed had no say in it; what ends by itself ends again with the same answers.
        retryable = code < 0 or code in SIGNALS
        self._fail(self._error(f"has ended with status {code}: {words[-SAID_CHARS:]}", retryable=retryable))

    async def _take(self, line: bytes) -> None:
        try:
            if len(line) > LONG_BYTES:
                said = await anyio.to_thread.run_sync(_decode_line, line)
            else:
                said = _decode_line(line)
        except UNREADABLE:
            return  # some launchers greet on the standard output
        if said.method is not None:
            if said.id is not UNSET:
                self._reply(said.id, said.method, said.params)
            elif said.method == "session/update":
                self._note(said.params)
        elif said.id is not UNSET:
            self._answered(said.id, said)

    def _note(self, params: Raw) -> None:
        with suppress(*UNREADABLE):
            update = _decode_update(params).update
            if update.kind == "agent_message_chunk" and isinstance(update.content, _Shown):
                self._chunks.append(update.content.text)
                self._chars += len(update.content.text)
                if self._chars > 2 * MAX_SHOWN_CHARS:
                    self._chunks, self._chars = [self.said], MAX_SHOWN_CHARS

    def _reply(self, request: Raw, method: str, params: Raw) -> None:
        if len(bytes(request)) > MAX_ID_BYTES:
            return self._fail(self._error("sends a request whose id is too long"))
        if method == "session/request_permission":
            self.asked_permissions += 1
            try:
                outcome = self._permitted(_decode_permission(params).options)
            except UNREADABLE as error:
                return self._refuse(request, _INVALID_PARAMS, str(error))
            return self._send({"id": request, "result": {"outcome": outcome}})
        return self._refuse(request, _METHOD_NOT_FOUND, f"this client does not offer {method[:100]}")

    def _refuse(self, request: Raw, code: int, message: str) -> None:
        self._send({"id": request, "error": {"code": code, "message": message}})

    def _permitted(self, options: Sequence[_Option]) -> dict[str, str]:
        for kind in _ALLOW if self._allow else _REFUSE:
            for option in options:
                if option.kind == kind:
                    return {"outcome": "selected", "optionId": option.id}
        return {"outcome": "cancelled"}

    def _answered(self, number: Raw, said: _Line) -> None:
        try:
            known = _decode_number(number)
        except UNREADABLE:
            known = -1
        if not 0 <= known < self._count:
            return self._fail(self._error("answers a request that was not made"))
        asked = self._waiting.get(known)
        if asked is None or asked.over.is_set():
            return None  # it comes late
        if bytes(said.error) != b"null":
            return asked.end(self._refusal(said.error))
        return asked.end(Raw(b"null") if said.result is UNSET else said.result)

    def _refusal(self, error: Raw) -> ResourceError:
        try:
            found = _decode_problem(error)
        except UNREADABLE:
            return self._error("answers with an error in another form than JSON-RPC's")
        more = f" ({_encode(found.data).decode()[:SAID_CHARS]})" if found.data else ""
        return self._error(f"answers with error {found.code}: {found.message[:SAID_CHARS]}{more}")


@asynccontextmanager
async def acp_connection(
    command: Sequence[str], environment: Mapping[str, str], folder: str, *, allow: bool
) -> AsyncGenerator[AcpConnection]:
    """A program and the connection to it; with the context it ends, and what it has started.

    Args:
        folder: its working directory.
        allow: as of `AcpConnection`.

    Raises:
        ResourceError: it cannot be started.
    """
    try:
        child = Child(command, environment=environment, directory=folder, with_errors=True)
    except OSError as error:
        raise ResourceError(f"the agent {command[0]} cannot be started: {error}", stage="agent") from error
    connection = AcpConnection(child, command[0], allow=allow)
    async with child, anyio.create_task_group() as tasks:
        tasks.start_soon(connection.listen)
        try:
            yield connection
        finally:
            connection.stop()
            await child.end()  # first, because the descendants of one that has ended are not found any more
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
