"""One session with an environment of OpenEnv, over its server's WebSocket.

Source: the messages of openenv 0.10, ``openenv.core.env_server.types``.
"""

from __future__ import annotations

import random
from typing import Any

import aiohttp
import anyio
import msgspec
from gym_runtime import ResourceError, SessionLost, TaskError
from gym_runtime.errors import UNREADABLE
from gym_sandbox.frames import decoded
from msgspec import Raw

MAX_BYTES = 4 * 2**20
CONNECT_S = 10.0
WAIT_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""The waits for a free session; the last one is repeated until the rollout's deadline."""
_CAPACITY, _INVALID = "CAPACITY_REACHED", "VALIDATION_ERROR"
_encode = msgspec.json.Encoder().encode


class Seen(msgspec.Struct):
    """What a reset or a step led to."""

    observation: dict[str, Any]
    reward: float | bool | None = None
    done: bool = False


class InvalidAction(Exception):
    """The server does not accept an action; the message is for the model."""


class _NoSession(Exception):
    """The server has as many sessions as it may."""


class _Schema(msgspec.Struct):
    action: dict[str, Any]


class _Problem(msgspec.Struct):
    message: str = ""
    code: str = ""
    errors: Raw = Raw(b"null")


class _Said(msgspec.Struct):
    type: str
    data: Raw = Raw(b"{}")


_decode_schema = msgspec.json.Decoder(_Schema).decode
_decode_said = msgspec.json.Decoder(_Said).decode
_decode_seen = msgspec.json.Decoder(Seen).decode
_decode_problem = msgspec.json.Decoder(_Problem).decode


async def _stays(request: aiohttp.ClientRequest, ask: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Refuse redirects, which aiohttp follows for a WebSocket without asking: a server leads nowhere else."""
    answer = await ask(request)
    if 300 <= answer.status < 400:
        answer.close()
        raise aiohttp.ClientConnectionError(f"it redirects with status {answer.status}")
    return answer


class Connection:
    """A session of its own at a server; made in an event loop, and closed there.

    Args:
        url: the server's, without a slash at its end.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)  # the rollout has the deadline
        self._http = aiohttp.ClientSession(timeout=timeout, auto_decompress=False, middlewares=(_stays,))

    async def close(self) -> None:
        """End the session. Repeatable."""
        if self._socket is not None:
            await self._socket.close()
        await self._http.close()

    async def action_schema(self) -> dict[str, Any]:
        """The JSON schema of the environment's actions.

        Raises:
            SessionLost: the server cannot be reached.
            ResourceError: it has none.
        """
        try:
            async with self._http.get(f"{self._url}/schema") as answer:
                body = bytearray()
                async for piece in answer.content.iter_any():
                    body += piece
                    if len(body) > MAX_BYTES:
                        raise ResourceError(f"{self._url}/schema answered more than {MAX_BYTES >> 20} MiB")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._lost(error) from error
        try:
            return decoded(_decode_schema, bytes(body)).action
        except UNREADABLE as error:
            raise ResourceError(
                f"{self._url}/schema answered {answer.status} and no schema: is it OpenEnv's?"
            ) from error

    async def reset(self, data: dict[str, Any]) -> Seen:
        """Connect and reset; wait for a free session if the server has none.

        Raises:
            TaskError: the server does not accept the data.
            SessionLost, ResourceError: as `step`.
        """
        attempt = 0
        while True:
            try:
                self._socket = await self._http.ws_connect(f"{self._url}/ws", max_msg_size=MAX_BYTES)
                return await self._ask("reset", data)
            except aiohttp.ClientError as error:
                raise self._lost(error) from error
            except _NoSession:
                assert self._socket is not None
                await self._socket.close()
                wait_s = WAIT_S[min(attempt, len(WAIT_S) - 1)]
                await anyio.sleep(wait_s * random.uniform(0.5, 1.0))
                attempt += 1
            except InvalidAction as error:
                raise TaskError(f"{self._url} does not accept the row's reset: {error}") from error

    async def step(self, action: dict[str, Any]) -> Seen:
        """Act.

        Raises:
            InvalidAction: the action does not fit the schema.
            SessionLost: the connection is lost, and with it the state.
            ResourceError: the environment failed.
        """
        return await self._ask("step", action)

    async def _ask(self, kind: str, data: dict[str, Any]) -> Seen:
        assert self._socket is not None
        try:
            await self._socket.send_str(_encode({"type": kind, "data": data}).decode())
            answer = await self._socket.receive()
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise self._lost(error) from error
        if answer.type is not aiohttp.WSMsgType.TEXT:
            raise self._lost(self._socket.exception() or answer.type.name)
        try:
            said = _decode_said(answer.data)
            if said.type == "error":
                raise self._failure(_decode_problem(said.data))
            return decoded(_decode_seen, bytes(said.data))
        except UNREADABLE as error:
            raise ResourceError(f"{self._url} answered {kind} with no observation: {error}") from error

    def _failure(self, problem: _Problem) -> Exception:
        if problem.code == _CAPACITY:
            return _NoSession()
        if problem.code == _INVALID:
            details = bytes(problem.errors)[:2000].decode(errors="replace")
            return InvalidAction(f"{problem.message}: {details}")
        return ResourceError(f"{self._url}: {problem.message} ({problem.code})")

    def _lost(self, why: object) -> SessionLost:
        name = f"{type(why).__name__}: {why}" if isinstance(why, BaseException) else why
        return SessionLost(f"the connection to {self._url} is lost: {name}")
