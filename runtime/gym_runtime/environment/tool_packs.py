"""Tool packs: tools that any environment can take by name, such as ``periodictable``.

A pack is a module of a package under the entry-point group ``gym_runtime.tools``, with a class ``Pack``. An
environment names it: ``Environment(tool_packs=("periodictable",))``. Packs serve the model and nothing else:
a verifier does not see their state, so their calls are not repeated when a rollout is verified again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import ClassVar

from gym_runtime.environment.tools import Tool, collect_tools
from gym_runtime.errors import UsageError


class ToolPack:
    """Tools beside an environment's own: a class with ``@tool`` methods.

    A session makes an instance of its own when the model first calls one of the tools.

    Attributes:
        extra: the extra of the distribution that its imports need, if any.
        data_license: the licence of what the tools answer from.
        timeouts: its calls that were stopped at their time limit; the pack counts them.
    """

    extra: ClassVar[str] = ""
    data_license: ClassVar[str] = ""
    timeouts: int = 0

    async def close(self) -> None:
        """Release what the pack holds; runs once, when the session ends."""


@cache
def tools_of(pack: type[ToolPack]) -> dict[str, Tool]:
    """The tools of a pack, by the names that the model uses."""
    return collect_tools(pack)


class ToolPacks:
    """The packs of one session.

    Attributes:
        calls: the calls of their tools so far.
        seconds: the time that these took.
    """

    def __init__(self, packs: Mapping[str, type[ToolPack]] | None = None) -> None:
        self.calls = 0
        self.seconds = 0.0
        self._packs: dict[str, type[ToolPack]] = {}
        self._of_tool: dict[str, str] = {}
        self._used: dict[str, ToolPack] = {}
        for name, pack in (packs or {}).items():
            self.take(name, pack)

    def take(self, name: str, pack: type[ToolPack]) -> None:
        """Take a further pack; one that is there already stays.

        Raises:
            UsageError: another pack has a tool of the same name.
        """
        if name in self._packs:
            return
        for tool in tools_of(pack):
            if tool in self._of_tool:
                raise UsageError(
                    f"the tool packs '{self._of_tool[tool]}' and '{name}' both have a tool '{tool}'"
                )
        self._of_tool |= dict.fromkeys(tools_of(pack), name)
        self._packs[name] = pack

    def __contains__(self, tool: str) -> bool:
        return tool in self._of_tool

    @property
    def tools(self) -> dict[str, Tool]:
        """All their tools, by name."""
        return {name: tool for pack in self._packs.values() for name, tool in tools_of(pack).items()}

    @property
    def timeouts(self) -> int:
        """The calls that were stopped at their time limit."""
        return sum(pack.timeouts for pack in self._used.values())

    async def call(self, tool: str, arguments: str) -> str:
        """The text that the model reads, also if its call is wrong.

        Raises:
            GymError: something that the tool needs failed; the model did not cause it.
        """
        name = self._of_tool[tool]
        pack = self._used.get(name)
        if pack is None:
            pack = self._used[name] = self._packs[name]()
        started_s = time.monotonic()
        try:
            return await tools_of(self._packs[name])[tool].call(pack, arguments)
        finally:
            self.calls += 1
            self.seconds += time.monotonic() - started_s

    @property
    def idle(self) -> bool:
        """Whether no pack holds anything."""
        return not self._used

    async def close(self) -> None:
        """Release what the packs hold."""
        while self._used:
            await self._used.popitem()[1].close()
