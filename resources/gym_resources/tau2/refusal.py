"""How a tool refuses a call; every tool refuses one with an argument that it does not have."""

from __future__ import annotations

from typing import Any

import gym_runtime
from gym_runtime import ToolError


def error(text: str) -> ToolError:
    """The answer to a call that cannot be carried out."""
    return ToolError(f"Error: {text}")


def exact(name: str, given: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a call.

    Raises:
        ToolError: the tool has no parameter of one of these names.
    """
    surplus = [one for one in given if one not in known]
    if surplus:
        raise error(f"{name} has no argument {surplus[0][:100]!r}")
    return given


tool = gym_runtime.tool(adapt=exact)
"""`gym_runtime.tool`, for tools that carry out no call with a surplus argument, as those of the authors."""
