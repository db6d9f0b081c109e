"""Tools that the bank's documents name, which are called through another tool by their names."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from gym_runtime import Text
from gym_runtime.errors import UNREADABLE
from msgspec import Meta

from gym_resources.tau2.criteria import FAILURES

Arguments = Annotated[str, Meta(description="the arguments as a JSON object")]


def refused(reason: str) -> Text:
    """The answer to a call that the bank does not carry out; for the authors it is no failed call."""
    return Text(f"Refused: {reason}")


def answered(said: str) -> Text:
    """The answer of a tool that was called through another one."""
    return refused(said.removeprefix("Error: ")) if said.startswith(FAILURES) else Text(said)


def named(called: Any, arguments: str, *, complete: bool = True) -> dict[str, Any] | Text:
    """The arguments of a tool that is called through another one, or why they do not fit it.

    Args:
        complete: all arguments that the tool needs must be there.
    """
    try:
        given = msgspec.json.decode(arguments, type=dict[str, Any])
    except UNREADABLE:
        return refused("the arguments are no JSON object")
    schema = called.definition()["parameters"]
    surplus = [name for name in given if name not in schema["properties"]]
    missing = [name for name in schema["required"] if name not in given]
    if surplus:
        return refused(f"{called.name} has no argument {surplus[0][:100]!r}")
    if missing and complete:
        return refused(f"{called.name} needs the argument {missing[0]!r}")
    return given


def described(found: Any) -> dict[str, Any]:
    """What is read of a tool that is given or unlocked."""
    definition = found.definition()
    return {name: definition[name] for name in ("name", "description", "parameters")}
