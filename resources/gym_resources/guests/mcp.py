"""Tools of an MCP server: ``mcp:http://HOST:PORT/mcp?verify=NAME`` or ``mcp:FILE.py?verify=NAME``.

A program runs in a new sandbox for each rollout. Rows come from a file, and the environment that
``verify`` names judges them: MCP knows tools, and neither tasks nor rewards.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from gym_runtime import Delegate, Environment, Reply, Task, UsageError, Verdict
from gym_runtime.environment import catalogue
from msgspec.structs import replace

from gym_resources.guests.played import named_code
from gym_resources.mcp_tools import McpEpisode, McpServer

_SETTINGS = ("args", "folders", "key", "packages", "verify")


class McpGuest(McpEpisode[Task]):
    """A rollout with the server's tools."""

    judge: ClassVar[str]

    async def verify(self, reply: Reply) -> Verdict:
        verdict = await Delegate(self.judge, self.row, self.models).verify(reply)
        return replace(verdict, fields={**verdict.fields, "mcp_tools": self.digest})


def environment(address: str) -> Environment:
    """The environment of an address; the server is asked when the first session opens.

    Raises:
        UsageError: the address names no server, a setting is unknown, or none says who judges.
    """
    name, settings = named_code.parse(address)
    if unknown := sorted(set(settings) - set(_SETTINGS)):
        raise UsageError(f"mcp: has no setting '{unknown[0]}'; it has {', '.join(_SETTINGS)}")
    judge = settings.get("verify")
    if not isinstance(judge, str):
        raise UsageError(f"mcp:{name} has no verdict of its own: say which environment judges, ?verify=NAME")
    judging = catalogue.environment(judge)
    if judging.definition.shape != "verify":
        raise UsageError(
            f"mcp: '{judge}' cannot judge: it keeps a state; ?verify= takes a plain verify function"
        )
    lists = {key: _texts(key, settings.get(key, [])) for key in ("args", "folders", "packages")}
    server = _server(name, str(settings.get("key", "")), lists)
    return Environment(
        resource=type("McpGuest", (McpGuest,), {"server": server, "judge": judging.name}),
        description=f"The tools of the MCP server {server.name}, judged by {judging.name}",
        roles=judging.definition.roles,
        replayable=not server.url,  # what a remote server remembers is not ours to repeat
    )


def _server(name: str, key: str, lists: dict[str, tuple[str, ...]]) -> McpServer:
    if "://" not in name:
        folders = tuple(str(Path(folder).resolve()) for folder in lists["folders"])
        if not name.endswith(".py"):
            return McpServer(command=(name, *lists["args"]), folders=folders, packages=lists["packages"])
        file = Path(name).resolve()
        if not file.is_file():
            raise UsageError(f"mcp:{name}: there is no such file")
        command = ("python", str(file), *lists["args"])
        return McpServer(command=command, folders=(str(file), *folders), packages=lists["packages"])
    parts = urlsplit(name)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise UsageError(
            "mcp: takes an address of the form http://HOST:PORT/PATH, without a user or a password"
        )
    return McpServer(url=name, key_variable=key)


def _texts(key: str, value: object) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):  # pyright: ignore[reportUnknownVariableType]
        raise UsageError(f"mcp: {key} is a text or a list of texts")
    return tuple(found)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
