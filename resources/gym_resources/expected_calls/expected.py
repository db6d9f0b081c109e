"""What a row expects of one model turn: a message, one call, or a batch of calls in any order.

The objects are those of the Responses API, ``arguments`` being JSON text, as a model writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE
from msgspec import Raw


class ExpectedMessage(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """A message and no call; its text does not matter. ``content`` is the original message."""

    content: Any = None


class ExpectedCall(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    """A call of one tool."""

    name: str
    arguments: str

    def __post_init__(self) -> None:
        if decoded(self.arguments) is INVALID:
            raise ValueError(f"the arguments expected of '{self.name}' are not JSON: {self.arguments:.100}")


class ExpectedBatch(msgspec.Struct, frozen=True, tag_field="type", tag="function_call_batch"):
    """Calls of one turn, whose order does not matter."""

    calls: list[ExpectedCall]

    def __post_init__(self) -> None:
        if not self.calls:
            raise ValueError("a batch of no calls expects nothing; expect a message instead")


class DeclaredTool(msgspec.Struct):
    """A tool that the row declares, with the JSON schema of its parameters."""

    name: str = ""
    parameters: dict[str, Any] | None = None


ExpectedAction = ExpectedMessage | ExpectedCall | ExpectedBatch
INVALID = object()
"""What `decoded` gives for text that is not JSON."""


def calls_of(action: ExpectedAction) -> list[ExpectedCall]:
    """The calls that are expected; none where a message is."""
    if isinstance(action, ExpectedMessage):
        return []
    return action.calls if isinstance(action, ExpectedBatch) else [action]


def parameters_of(declared: list[DeclaredTool] | None, offered: Sequence[Raw]) -> dict[str, dict[str, Any]]:
    """The parameters of the declared tools, or of those that the row offers, by name."""
    if declared is None:
        declared = [msgspec.json.decode(tool, type=DeclaredTool) for tool in offered]
    return {tool.name: tool.parameters or {} for tool in declared}


def decoded(arguments: str) -> Any:
    """Arguments as values, or `INVALID`."""
    try:
        return msgspec.json.decode(arguments)
    except UNREADABLE:
        return INVALID
