"""Tools of an MCP server: ``mcp:http://HOST:PORT/mcp?verify=NAME`` or ``mcp:FILE.py?verify=NAME``.

A program runs in a new sandbox for each rollout. Rows come from a file, and the environment that
``verify`` names judges them: MCP knows tools, and neither tasks nor rewards.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, ClassVar

from gym_runtime import Delegate, Environment, Reply, Task, UsageError, Verdict
from gym_runtime.environment import catalogue
from msgspec.structs import replace

from gym_resources.guests.played import named_code
from gym_resources.mcp_tools import McpEpisode, McpServer
from gym_resources.mcp_tools.mcp_connection import CALL_S

_OF_ALL, _OF_URL, _OF_PROGRAM = ("call_s", "verify"), ("key",), ("args", "folders", "packages")
_SETTINGS = (*_OF_ALL, *_OF_PROGRAM, *_OF_URL)


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
    if not name:
        raise UsageError("mcp: names no server: mcp:URL, mcp:FILE.py or mcp:PROGRAM")
    judge = settings.get("verify")
    if not isinstance(judge, str):
        raise UsageError(f"mcp:{name} has no verdict of its own: say which environment judges, ?verify=NAME")
    judging = catalogue.environment(judge)
    if judging.definition.shape != "verify":
        raise UsageError(
            f"mcp: '{judge}' cannot judge: it keeps a state; ?verify= takes a plain verify function"
        )
    server = _server(name, settings)
    return Environment(
        resource=type("McpGuest", (McpGuest,), {"server": server, "judge": judging.name}),
        description=f"The tools of the MCP server {server.name}, judged by {judging.name}",
        roles=judging.definition.roles,
        replayable=not server.url,  # what a remote server remembers is not ours to repeat
    )


def _server(name: str, settings: dict[str, Any]) -> McpServer:
    remote = "://" in name
    for key in (one for one in (_OF_PROGRAM if remote else _OF_URL) if one in settings):
        raise UsageError(f"mcp:{name}: {key} is a setting of {'programs' if remote else 'addresses'} only")
    call_s = named_code.seconds(settings.get("call_s", CALL_S), "call_s")
    if not remote:
        lists = {key: _texts(key, settings.get(key, [])) for key in _OF_PROGRAM}
        folders, packages = _folders(lists["folders"]), _installed(lists["packages"])
        command = (name, *lists["args"])
        if name.endswith(".py"):
            file = Path(name).resolve()
            if not file.is_file():
                raise UsageError(f"mcp:{name}: there is no such file")
            command, folders = ("python", str(file), *lists["args"]), (str(file), *folders)
        return McpServer(command=command, folders=folders, packages=packages, call_s=call_s)
    named_code.http(name, "mcp:http://HOST:PORT/PATH")
    return McpServer(url=name, key_variable=str(settings.get("key", "")), call_s=call_s)


def _folders(given: tuple[str, ...]) -> tuple[str, ...]:
    for one in given:
        if not Path(one).exists():
            raise UsageError(f"mcp: folders: there is no '{one[:200]}' on this machine")
    return tuple(str(Path(one).resolve()) for one in given)


def _installed(packages: tuple[str, ...]) -> tuple[str, ...]:
    for name in packages:
        try:
            distribution(name)
        except (PackageNotFoundError, ValueError) as error:  # of an empty name
            raise UsageError(
                f"mcp: packages: '{name[:200]}' is not installed here; nothing is installed for a run, so: "
                "pip install it, and name it as pip does, without a version"
            ) from error
    return packages


def _texts(key: str, value: object) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):  # pyright: ignore[reportUnknownVariableType]
        raise UsageError(f'mcp: {key} is a text or a list of texts, such as ["--fast","5"]')
    return tuple(found)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
