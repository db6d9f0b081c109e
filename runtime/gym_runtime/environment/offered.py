"""Tool packs that a row asks for by offering their tools, for environments that take any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gym_runtime.environment import catalogue
from gym_runtime.environment.requirements import require_pack
from gym_runtime.environment.tool_packs import ToolPack, tools_of


class _Offered(msgspec.Struct):
    name: Any = None


_decode = msgspec.json.Decoder(_Offered).decode


def offered_packs(tools: Sequence[msgspec.Raw]) -> dict[str, type[ToolPack]]:
    """The tool packs, by name, of which some ``responses_create_params.tools`` offer a tool.

    Raises:
        UsageError: a pack's packages are not installed; with the command that installs them.
    """
    offered = [_decode(tool).name for tool in tools]
    found: dict[str, type[ToolPack]] = {}
    for name in catalogue.names("tools") if offered else ():
        pack = catalogue.tool_pack(name)
        if any(tool in offered for tool in tools_of(pack)):
            require_pack(name, pack)
            found[name] = pack
    return found
