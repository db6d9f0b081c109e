"""How a tool refuses a call."""

from __future__ import annotations

from gym_runtime import ToolError


def error(text: str) -> ToolError:
    """The answer to a call that cannot be carried out."""
    return ToolError(f"Error: {text}")
