"""A resources server of NeMo Gym at an address: ``nemo-gym:http://HOST:PORT``.

Its sessions, tools and verifier are asked over HTTP, as NeMo Gym's own agent asks them: ``/seed_session``
with the row, ``/<tool>`` with the arguments, ``/verify`` with the row and the response, and its cookies in
each request. The agent, the journal, retries and what a failure means are this runtime's. An answer of a tool
goes to the model as it is, with any status below 502; a verdict has to come with status 200.

The server keeps the state. When it cannot be reached, the session counts as lost, and the rollout starts
again. ``GYM_SERVER_KEY`` is sent as a bearer's token, for a ``gym-runtime gym-server`` with a key. A server
that offers its tools over MCP is ``nemo-gym:URL?mcp=true``: `/seed_session` says where, with a secret of the
session. Servers with ``/reset`` and ``/step`` are not supported.
"""

from __future__ import annotations

import os
import re
from http import HTTPStatus
from typing import Any, NamedTuple

import aiohttp
import msgspec
from anyio.lowlevel import checkpoint
from gym_runtime import (
    Environment,
    Reply,
    ResourceError,
    Session,
    SessionLost,
    Task,
    TaskError,
    UsageError,
    Verdict,
)
from gym_runtime.errors import UNREADABLE
from gym_sandbox.frames import decoded, is_decodable
from msgspec import Raw

from gym_resources.guests.played import named_code
from gym_resources.mcp_tools import McpEpisode, McpServer
from gym_resources.mcp_tools.mcp_connection import CALL_S

MAX_BYTES = 32 * 2**20
CONNECT_S = 10.0
_PATH = re.compile(r"/[\w/.-]*")
_TOOL = re.compile(r"\w[\w-]{0,127}")
_RESERVED = frozenset(
    {"seed_session", "close_session", "verify", "run", "aggregate_metrics", "reverify_mode", "reset", "step"}
    | {"close", "mcp", "stats", "docs", "redoc"}
)
"""Paths of a server that are no tools: a model must not reach them by their names."""
_SYSTEM = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
_ROWS = frozenset({"responses_create_params", "response", "reward", "reward_components"})
_HEADERS = {"content-type": "application/json", "accept-encoding": "identity"}
_FAILED = "_ng_failure_class"
_ABOUT = {"id": "resp", "created_at": 0, "model": "policy", "object": "response"}
_ASKED: dict[str, Any] = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_encode = msgspec.json.Encoder().encode


class _Answer(NamedTuple):
    status: int
    body: bytes


class _Judged(msgspec.Struct):
    reward: float
    reward_components: dict[str, float] | None = None


class _Echo(msgspec.Struct):
    """What a verdict repeats; the tokens of a response are long lists, and nothing here reads them."""

    response: Raw = Raw()
    responses_create_params: Raw = Raw()


class _Mcp(msgspec.Struct):
    """Where a session's tools are; ``headers`` name the session, and are secret."""

    url_path: str = "/mcp"
    headers: dict[str, str] = {}


class _Seeded(msgspec.Struct):
    mcp: _Mcp | None = None


_decode_echo = msgspec.json.Decoder(_Echo).decode
_decode_judged = msgspec.json.Decoder(_Judged).decode
_decode_seeded = msgspec.json.Decoder(_Seeded).decode


class ResourcesServer(Session[Task]):
    """A session that the server at `url` keeps."""

    url = ""

    async def open(self) -> None:
        self._lost = ""
        self._fields = _decode_fields(self.row)
        key = os.environ.get("GYM_SERVER_KEY", "")
        # Without kept connections: servers close idle ones after seconds, and a model takes longer.
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            cookie_jar=aiohttp.CookieJar(unsafe=True),  # cookies of addresses, not only of names
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),  # the rollout has the deadline
            auto_decompress=False,  # a small answer may decompress to gigabytes
            headers={**_HEADERS, **({"authorization": f"Bearer {key}"} if key else {})},
        )
        self.seeded = self._accepted(await self._post("seed_session", self.row), "seed_session").body

    async def close(self) -> None:
        await self._http.close()

    async def call_unknown_tool(self, name: str, arguments: str) -> str | None:
        if not _TOOL.fullmatch(name) or name in _RESERVED:
            return None
        answer = await self._post(name, arguments.encode(errors="replace"))
        if answer.status in _SYSTEM:
            raise self._failed(answer, name)
        return answer.body.decode(errors="replace")

    async def verify(self, reply: Reply) -> Verdict:
        body = _encode({**self._fields, "response": _complete(reply)})
        answer = self._accepted(await self._post("verify", body), "verify")
        try:
            own = _without_echo(answer.body)
            await checkpoint()
            fields = decoded(_decode_fields, answer.body, counted=own)
            judged = _decode_judged(answer.body)
            new = {
                name: msgspec.json.decode(value)
                for name, value in fields.items()
                if self._is_new(name, value)
            }
        except UNREADABLE as error:
            raise ResourceError(f"{self.url}/verify answered no verdict: {error}") from error
        if _FAILED in fields:
            failure = bytes(fields[_FAILED])[:100].decode(errors="replace")
            raise ResourceError(f"{self.url}/verify has no verdict: {_FAILED} is {failure}")
        return Verdict(judged.reward, components=judged.reward_components or {}, fields=new)

    def _is_new(self, name: str, value: Raw) -> bool:
        """Whether the verifier has added a field, or changed the row's."""
        if name in _ROWS:
            return False
        given = self._fields.get(name)
        if given is None:
            return True
        return given != value and msgspec.json.decode(given) != msgspec.json.decode(value)

    async def _post(self, path: str, body: bytes) -> _Answer:
        if self._lost:
            raise SessionLost(self._lost)
        try:
            async with self._http.post(f"{self.url}/{path}", data=body, allow_redirects=False) as answer:
                found = bytearray()
                async for piece in answer.content.iter_any():
                    found += piece
                    if len(found) > MAX_BYTES:
                        raise ResourceError(f"{self.url}/{path} answered more than {MAX_BYTES >> 20} MiB")
                return _Answer(answer.status, bytes(found))
        except (aiohttp.ClientError, TimeoutError) as error:
            self._lost = f"{self.url} cannot be reached: {type(error).__name__}: {error}"
            raise SessionLost(self._lost) from error

    def _accepted(self, answer: _Answer, path: str) -> _Answer:
        """The answer, if its status is 200.

        Raises:
            TaskError: the server refuses the row.
            ResourceError: any other status.
        """
        if answer.status == HTTPStatus.OK:
            return answer
        error = self._failed(answer, path)
        if answer.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
            raise TaskError(error.message)
        raise error

    def _failed(self, answer: _Answer, path: str) -> ResourceError:
        said = " ".join(answer.body[:500].decode(errors="replace").split())
        error = ResourceError(f"{self.url}/{path} answered {answer.status}: {said}")
        error.retryable = answer.status in _SYSTEM
        return error


class McpResources(McpEpisode[Task]):
    """A session that the server at `url` keeps, and whose tools it offers over MCP."""

    url = ""
    call_s = CALL_S

    async def open(self) -> None:
        self._session = type("Session", (ResourcesServer,), {"url": self.url})(self.task)
        self._session.row = self.row
        await self._session.open()
        try:
            mcp = decoded(_decode_seeded, self._session.seeded).mcp
        except UNREADABLE as error:
            raise ResourceError(f"{self.url}/seed_session does not say where its tools are") from error
        if mcp is None or not _PATH.fullmatch(mcp.url_path):
            raise ResourceError(f"{self.url} offers no tools over MCP: leave out mcp=true")
        headers = tuple(mcp.headers.items())
        self.server = McpServer(url=f"{self.url}{mcp.url_path}", headers=headers, call_s=self.call_s)
        await super().open()

    async def verify(self, reply: Reply) -> Verdict:
        return await self._session.verify(reply)

    async def close(self) -> None:
        await super().close()
        await self._session.close()


def _without_echo(body: bytes) -> bytes:
    if is_decodable(body):
        return body
    echo = _decode_echo(body)
    # Once each: a response of "[]" must not hide all the lists of other fields.
    return body.replace(echo.response, b"", 1).replace(echo.responses_create_params, b"", 1)


def _complete(reply: Reply) -> dict[str, Any]:
    """The response with what NeMo Gym's servers demand of it and engines may leave out."""
    fields = _decode_fields(reply.raw)
    items = _decode_items(fields["output"]) if "output" in fields else []
    for number, item in enumerate(items):
        kind = msgspec.json.decode(item.get("type", Raw(b'""')))
        if kind in ("message", "reasoning"):
            item.setdefault("id", Raw(b'"item_%d"' % number))
        if kind == "reasoning":
            item.setdefault("summary", Raw(b"[]"))
        if kind == "message" and bytes(item.get("role", Raw())) == b'"assistant"':
            item.setdefault("status", Raw(b'"completed"'))
            content = item.get("content", Raw())
            if bytes(content).startswith(b"["):
                parts = _decode_items(content)
                for part in parts:
                    part.setdefault("annotations", Raw(b"[]"))
                item["content"] = Raw(_encode(parts))
    return {**_ABOUT, **_ASKED, **fields, "output": items}


def environment(address: str) -> Environment:
    """The environment behind an address, which is asked when its first session opens.

    Raises:
        UsageError: it is no address.
    """
    address, settings = named_code.parse(address)
    over_mcp, own = settings.pop("mcp", False), "call_s" in settings
    call_s = named_code.seconds(settings.pop("call_s", CALL_S), "call_s")
    form = "nemo-gym:http://HOST:PORT, …?mcp=true or …?mcp=true&call_s=SECONDS"
    if settings or not isinstance(over_mcp, bool) or (own and not over_mcp):
        raise UsageError(f"nemo-gym:{address} is not of the form {form}")
    parts = named_code.http(address, f"{form} (for a key set GYM_SERVER_KEY)")
    if parts.query or parts.fragment:
        raise UsageError(f"nemo-gym:{address} is not of the form {form}")
    url = address.rstrip("/")
    if over_mcp:
        return Environment(
            resource=type("McpResources", (McpResources,), {"url": url, "call_s": call_s}),
            description=f"The NeMo Gym resources server at {url}, with its tools over MCP",
            replayable=False,
        )
    return Environment(
        resource=type("ResourcesServer", (ResourcesServer,), {"url": url}),
        description=f"The NeMo Gym resources server at {url}",
    )
