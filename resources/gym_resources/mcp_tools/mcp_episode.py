"""An environment whose tools are those of an MCP server.

    from gym_resources.mcp_tools import McpEpisode, McpServer

    class Files(McpEpisode[Task]):
        server = McpServer(url="http://127.0.0.1:8000/mcp")

        async def verify(self, reply: Reply) -> Verdict: ...

An ``open``, ``reset`` or ``close`` of its own calls that of `McpEpisode`, too. The model gets the tools at
the beginning, and its calls go to the server until it answers without one. All sessions of a worker must find
the same tools: a server whose list has changed is refused.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from gym_runtime import Episode, Image, Reply, ResourceError, Step, Task
from gym_runtime.errors import UNREADABLE

from gym_resources.mcp_tools.listed_tools import McpTool, model_names
from gym_resources.mcp_tools.mcp_connection import Connection, McpResult, McpServer

T = TypeVar("T", bound=Task)
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_listed: dict[str, str] = {}
"""The digest of each server's tools, as the first session of this worker found them."""


class McpEpisode(Episode[T]):
    """A session with the tools of `server`.

    Attributes:
        server: the server; each session has a connection of its own.
        tools: the server's tools, by the names that the model uses; there from `reset` on.
        digest: of these tools.
    """

    server: McpServer
    tools: Mapping[str, McpTool] = MappingProxyType({})
    digest: str = ""
    _connection: Connection | None = None

    async def open(self) -> None:
        connection = Connection(self.server)
        self._connection = await connection.__aenter__()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.__aexit__()

    async def reset(self) -> str | None:
        if self._connection is None:
            raise ResourceError("there is no connection: begin your open with 'await super().open()'")
        self.tools = model_names(await self._connection.tools())
        self.offered_tools = [
            {
                "type": "function",
                "name": name,
                "description": one.description,
                "parameters": one.schema,
                "strict": False,
            }
            for name, one in self.tools.items()
        ]
        self.digest = hashlib.sha256(msgspec.json.encode(self.offered_tools)).hexdigest()[:16]
        if _listed.setdefault(self.server.name, self.digest) != self.digest:
            raise ResourceError(f"{self.server.name} lists other tools than in the rollouts before")
        return None

    async def step(self, reply: Reply) -> Step:
        if not self.digest:
            raise ResourceError("no tools were offered: begin your reset with 'await super().reset()'")
        outputs = {
            call.call_id: await self._called(call.name, call.arguments) for call in reply.function_calls
        }
        return Step(tool_outputs=outputs, terminated=not outputs)

    async def _called(self, name: str, arguments: str) -> str | list[str | Image]:
        tool = self.tools.get(name)
        if tool is None:
            return f"There is no tool '{name[:100]}'."
        try:
            given = _decode_object(arguments or "{}")
        except UNREADABLE as error:
            return f"The arguments are not a JSON object: {error}"
        assert self._connection is not None
        return shown(await self._connection.call(tool.name, given))


def shown(result: McpResult) -> str | list[str | Image]:
    """What the model gets of a tool's answer; nothing that it links to is fetched.

    Raises:
        ResourceError: it cannot be written as text.
    """
    try:
        found = [_shown(block) for block in result.content]
        if not found and bytes(result.structured) != b"null":
            return bytes(result.structured).decode()
    except (UnicodeError, RecursionError) as error:
        raise ResourceError(f"the tool's answer cannot be shown: {error}") from error
    if any(isinstance(one, Image) for one in found):
        return found
    return "\n".join(map(str, found))


def _shown(block: dict[str, Any]) -> str | Image:
    inner = block.get("resource")
    match block.get("type"):
        case "image":
            try:
                return Image(b64decode(str(block.get("data")), validate=True))
            except ValueError as error:  # also of what is no Base64
                return f"[an image that cannot be shown: {str(error)[:200]}]"
        case "text":
            return str(block.get("text", ""))
        case "resource" if isinstance(inner, dict) and "text" in inner:
            return str(inner["text"])  # pyright: ignore[reportUnknownArgumentType]
        case "resource_link":
            return f"[link to {str(block.get('uri', ''))[:500]}]"
        case kind:
            return f"[{str(kind)[:50]}]"
